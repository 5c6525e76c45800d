import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import {
  appendFileSync,
  closeSync,
  mkdtempSync,
  openSync,
  readFileSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeployError } from '../../../src/core/errors.ts'
import { readLocalArtifact } from '../../../src/marketplace/gate/local-artifact.ts'
import { signatureOf } from '../../e2e/harness/untrusted-hub.ts'
import { toolsOf } from '../../install/prepared-deployment.ts'
import { temporaryDirectory } from '../../install/temporary-directory.ts'
import { timesMoveOn } from '../../install/times-move-on.ts'

const BYTES = Buffer.alloc(600 * 1024, 'artifact ')
const SECRET = 'secret'

/** Reads an artifact. Calls `onPiece` before the first piece is read, and after each piece. */
async function readWhile(t: TestContext, onPiece: (path: string) => void, more: { signal?: AbortSignal } = {}) {
  const workspace = temporaryDirectory(t)
  const path = join(workspace, 'greeter.zip')
  writeFileSync(path, BYTES)
  utimesSync(path, 1, 1)
  await timesMoveOn(workspace)
  const copy = join(mkdtempSync(join(workspace, 'copy-')), 'copy')
  const fd = openSync(copy, 'wx+')
  const now = (): Date => {
    onPiece(path)
    return new Date()
  }
  try {
    const source = { workspace, path: 'greeter.zip', signature: signatureOf(BYTES, SECRET) }
    const request = { signingSecret: SECRET, maxArtifactBytes: BYTES.length }
    const served = await readLocalArtifact({ source, request, tools: toolsOf({ now, ...more }), fd })
    return { served, copied: readFileSync(copy) }
  } finally {
    closeSync(fd)
  }
}

function refusedWith(code: string) {
  return (error: unknown): boolean => error instanceof DeployError && error.code === code
}

describe('readLocalArtifact', () => {
  it('copies the file and computes its digest and HMAC', async t => {
    const { served, copied } = await readWhile(t, () => {})
    assert.ok(copied.equals(BYTES))
    assert.equal(served.artifact.size, BYTES.length)
    assert.equal(served.artifact.sha256, createHash('sha256').update(BYTES).digest('hex'))
    assert.equal(`hmac_sha256:${served.hmac.toString('hex')}`, served.signatureHeader)
  })

  const changes: Record<string, (path: string) => void> = {
    'gets longer': path => appendFileSync(path, 'x'),
    'gets shorter': path => truncateSync(path, 10),
    'is emptied': path => truncateSync(path, 0),
    'gets other bytes under its old modification time': path => {
      writeFileSync(path, Buffer.alloc(BYTES.length, 'other '))
      utimesSync(path, 1, 1)
    },
  }
  for (const [name, change] of Object.entries(changes)) {
    it(`refuses a file that ${name} while it is read`, async t => {
      let pieces = 0
      const onPiece = (path: string): void => {
        if (pieces++ === 1) change(path)
      }
      await assert.rejects(readWhile(t, onPiece), refusedWith('invalid_input'))
      assert.ok(pieces > 1)
    })
  }

  it('ends at once when it is cancelled', async t => {
    const cancel = new AbortController()
    const read = readWhile(t, () => cancel.abort(), { signal: cancel.signal })
    await assert.rejects(read, { name: 'AbortError' })
  })
})
