import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { HubError } from '../errors.ts'
import { writeNewFile } from '../new-file.ts'
import { unreadable } from '../unreadable.ts'

const RAW_BYTES = 32

/** Writes a new Ed25519 key as PKCS #8 PEM, mode 0600. Throws HubError 400 if the file exists or cannot be written. */
export function createSigningKey(path: string): KeyObject {
  const { privateKey } = generateKeyPairSync('ed25519')
  writeNewFile(path, privateKey.export({ format: 'pem', type: 'pkcs8' }), 0o600)
  return privateKey
}

/** Throws HubError 400 if the file cannot be read or is not an Ed25519 private key in PEM without a passphrase. */
export function readSigningKey(path: string): KeyObject {
  const pem = readKeyFile(path)
  try {
    const key = createPrivateKey(pem)
    if (key.asymmetricKeyType === 'ed25519') return key
  } catch {}
  throw new HubError(
    400,
    `The file ${path} is not an Ed25519 private key in PEM without a passphrase: create one with "project keygen --out FILE".`,
  )
}

function readKeyFile(path: string): Buffer {
  try {
    return readFileSync(path)
  } catch (error) {
    throw new HubError(
      400,
      `The signing key ${path} ${unreadable(error, 'create one with "project keygen --out FILE"')}.`,
    )
  }
}

/** The raw 32 bytes of the key's public half, in base64 (contract 2.2, signer_public_key). */
export function signerPublicKey(key: KeyObject): string {
  return createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(-RAW_BYTES).toString('base64')
}
