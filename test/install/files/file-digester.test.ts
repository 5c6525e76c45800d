import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { FileDigester } from '../../../src/install/files/file-digester.ts'
import { temporaryDirectory } from '../temporary-directory.ts'

const SIZES = [0, 1, 1024 * 1024, 3 * 1024 * 1024 + 1]

describe('FileDigester', () => {
  it('hashes one file after another, of any size', async t => {
    const folder = temporaryDirectory(t)
    const digester = new FileDigester()
    for (const size of SIZES) {
      const bytes = Buffer.alloc(size, 'bytes')
      writeFileSync(join(folder, 'file'), bytes)
      assert.equal(await digester.sha256(join(folder, 'file'), size), createHash('sha256').update(bytes).digest('hex'))
    }
  })

  it('reads little of a file that has grown to a terabyte since it was listed, and gives it another digest', async t => {
    const path = join(temporaryDirectory(t), 'file')
    writeFileSync(path, 'x')
    truncateSync(path, 2 ** 40)
    assert.notEqual(await new FileDigester().sha256(path, 1), createHash('sha256').update('x').digest('hex'))
  })

  it('follows no symlink', async t => {
    const folder = temporaryDirectory(t)
    writeFileSync(join(folder, 'file'), 'x')
    symlinkSync('file', join(folder, 'link'))
    await assert.rejects(new FileDigester().sha256(join(folder, 'link'), 1), { code: 'ELOOP' })
  })

  it("throws an aborted signal's reason", async t => {
    const path = join(temporaryDirectory(t), 'file')
    writeFileSync(path, Buffer.alloc(64 * 1024 * 1024))
    const digester = new FileDigester(AbortSignal.abort(new Error('cancelled')))
    await assert.rejects(digester.sha256(path, 64 * 1024 * 1024), /cancelled/)
  })
})
