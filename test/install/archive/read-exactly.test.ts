import assert from 'node:assert/strict'
import { closeSync, openSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { readExactly, readWhole } from '../../../src/install/archive/read-exactly.ts'
import { temporaryDirectory } from '../temporary-directory.ts'

/** The publisher cannot help: the file was complete when it was opened. */
const truncated = { code: 'invalid_archive', message: /which process on this host shortens the file/ }

function openFile(t: TestContext, text: string): number {
  const path = join(temporaryDirectory(t), 'file')
  writeFileSync(path, text)
  const fd = openSync(path, 'r')
  t.after(() => closeSync(fd))
  return fd
}

describe('readExactly', () => {
  it('fills the buffer from a position', t => {
    const buffer = Buffer.alloc(3)
    readExactly(openFile(t, 'abcdef'), buffer, 2)
    assert.equal(buffer.toString(), 'cde')
  })

  it('refuses a file that ends too early', t => {
    assert.throws(() => readExactly(openFile(t, 'abcdef'), Buffer.alloc(3), 4), truncated)
  })
})

describe('readWhole', () => {
  it("fills shared memory from the file's beginning, whatever the descriptor's position", async t => {
    const fd = openFile(t, 'abcdef')
    readExactly(fd, Buffer.alloc(3), 0)
    const buffer = Buffer.from(new SharedArrayBuffer(6))
    await readWhole(fd, buffer)
    assert.equal(buffer.toString(), 'abcdef')
  })

  it('refuses a file that ends too early', async t => {
    await assert.rejects(readWhole(openFile(t, 'abcdef'), Buffer.alloc(7)), truncated)
  })
})
