import { createHash, createHmac } from 'node:crypto'
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type VerifiedArtifact, verifyHmacSignature } from '../../../src/core/trust/signature.ts'

/** Runs `use` in a temporary directory, and removes the directory afterwards. */
export async function inTemporaryDirectory<Result>(use: (directory: string) => Promise<Result>): Promise<Result> {
  const directory = mkdtempSync(join(tmpdir(), 'archive-test-'))
  try {
    return await use(directory)
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Runs `use` with a verified artifact of these bytes, in a file without a name, as after a download. */
export async function withVerifiedArtifact<Result>(
  bytes: Uint8Array,
  directory: string,
  use: (artifact: VerifiedArtifact) => Promise<Result>,
): Promise<Result> {
  const path = join(directory, 'artifact')
  writeFileSync(path, bytes)
  const fd = openSync(path, 'r')
  rmSync(path)
  try {
    return await use(verifySigned(fd, bytes))
  } finally {
    closeSync(fd)
  }
}

function verifySigned(fd: number, bytes: Uint8Array): VerifiedArtifact {
  const hmac = createHmac('sha256', 'test secret').update(bytes).digest()
  const fetched = { fd, size: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') }
  return verifyHmacSignature(fetched, hmac, `hmac_sha256:${hmac.toString('hex')}`)
}
