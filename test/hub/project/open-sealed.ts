import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createDecipheriv, createPublicKey, verify } from 'node:crypto'
import type { TestContext } from 'node:test'
import { zstdDecompressSync } from 'node:zlib'
import type { SealedProject } from '../../../hub/project/seal.ts'
import { newFolder } from '../running-hub.ts'

type Sealed = Pick<SealedProject, 'bytes' | 'release'>

/** Opens the tar in a sealed file as the format describes (signature, tag, zstd), without the hub's own code. */
export function openSealed(sealed: Sealed): Buffer {
  return zstdDecompressSync(decryptSealed(sealed))
}

/** The zstd stream in a sealed file, whose signature and tag match. */
export function decryptSealed({ bytes, release }: Sealed): Buffer {
  const raw = Buffer.from(release.signer_public_key, 'base64').toString('base64url')
  const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: raw }, format: 'jwk' })
  assert.ok(verify(null, bytes, key, Buffer.from(release.signature, 'base64')))
  const dek = Buffer.from(release.dek, 'base64')
  const decipher = createDecipheriv('aes-256-gcm', dek, bytes.subarray(0, 12), { authTagLength: 16 })
  decipher.setAuthTag(bytes.subarray(-16))
  return Buffer.concat([decipher.update(bytes.subarray(12, -16)), decipher.final()])
}

/** The lines of `tar --list --verbose --numeric-owner`, in the order of the members. */
export function listTar(tar: Buffer): string[] {
  const args = ['--list', '--verbose', '--numeric-owner', '--full-time', '--quoting-style=literal', '--utc']
  const listed = execFileSync('tar', args, { input: tar, encoding: 'utf8', env: { ...process.env, LC_ALL: 'C.UTF-8' } })
  return listed.trimEnd().split('\n')
}

/** Extracts with the machine's tar into a folder that is removed when the test ends. */
export function extractTar(t: TestContext, tar: Buffer): string {
  const folder = newFolder(t)
  execFileSync('tar', ['--extract', '--directory', folder], { input: tar })
  return folder
}
