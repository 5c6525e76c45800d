import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { HubError } from '../errors.ts'

const RAW_BYTES = 32

/** Makes an Ed25519 key and writes it as PKCS #8 PEM, mode 0600. Throws HubError 400 when the file is there already. */
export function createSigningKey(path: string): KeyObject {
  const { privateKey } = generateKeyPairSync('ed25519')
  try {
    writeFileSync(path, privateKey.export({ format: 'pem', type: 'pkcs8' }), { mode: 0o600, flag: 'wx' })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') throw new HubError(400, `The file ${path} exists already: a key is never written over.`)
    throw new HubError(
      400,
      `The file ${path} cannot be written (${code}): give --out in a folder that is there and yours.`,
    )
  }
  return privateKey
}

/** Throws HubError 400 when the file cannot be read, or holds no Ed25519 private key in PEM. */
export function readSigningKey(path: string): KeyObject {
  const pem = readKeyFile(path)
  try {
    const key = createPrivateKey(pem)
    if (key.asymmetricKeyType === 'ed25519') return key
  } catch {}
  throw new HubError(400, `The file ${path} must hold an Ed25519 private key in PEM: "project keygen" makes one.`)
}

function readKeyFile(path: string): Buffer {
  try {
    return readFileSync(path)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const found = code === 'ENOENT' ? 'is not there' : `cannot be read (${code})`
    throw new HubError(400, `The signing key ${path} ${found}: "project keygen --out FILE" makes one.`)
  }
}

/** The raw 32 bytes of the key's public half, in base64 (contract 2.2, signer_public_key). */
export function signerPublicKey(key: KeyObject): string {
  return createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(-RAW_BYTES).toString('base64')
}
