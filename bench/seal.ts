import { execFileSync } from 'node:child_process'
import { createCipheriv, generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import { createReadStream, createWriteStream, readFileSync, rmSync, statSync } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import { createZstdCompress } from 'node:zlib'
import type { SealedArtifact } from './artifact.ts'

const NONCE_BYTES = 12
const RAW_KEY_BYTES = 32
const CHUNK_BYTES = 1024 * 1024

/**
 * Seals a project's folder in the encrypted artifact format: a nonce, then a tar that is compressed with zstd and
 * encrypted with AES-256-GCM, then the tag. An Ed25519 signature covers all of it. Throws if this machine has no `tar`.
 */
export async function seal(project: string, path: string, version: string): Promise<SealedArtifact> {
  const tar = `${path}.tar`
  const dek = randomBytes(32)
  try {
    execFileSync('tar', ['-cf', tar, '-C', project, '.'])
    await encrypt(tar, path, dek)
  } finally {
    rmSync(tar, { force: true })
  }
  return { format: 'sealed', path, size: statSync(path).size, version, dek: dek.toString('base64'), ...signFile(path) }
}

async function encrypt(tar: string, path: string, dek: Buffer): Promise<void> {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', dek, nonce)
  const source = createReadStream(tar, { highWaterMark: CHUNK_BYTES })
  await pipeline(
    source,
    createZstdCompress({ chunkSize: CHUNK_BYTES }),
    async function* sealed(compressed) {
      yield nonce
      for await (const chunk of compressed) yield cipher.update(chunk)
      yield cipher.final()
      yield cipher.getAuthTag()
    },
    createWriteStream(path),
  )
}

function signFile(path: string): { signature: string; signerPublicKey: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const signature = sign(null, readFileSync(path), privateKey).toString('base64')
  const der = publicKey.export({ format: 'der', type: 'spki' })
  return { signature, signerPublicKey: der.subarray(-RAW_KEY_BYTES).toString('base64') }
}
