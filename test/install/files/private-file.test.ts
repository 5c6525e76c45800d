import assert from 'node:assert/strict'
import { fstatSync, readdirSync, writeSync } from 'node:fs'
import { describe, it } from 'node:test'
import { openPrivateFileSync } from '../../../src/install/files/private-file.ts'
import { temporaryDirectory } from '../temporary-directory.ts'

describe('openPrivateFileSync', () => {
  it('opens a file without a name, which no other process can open or replace', t => {
    const folder = temporaryDirectory(t)
    const file = openPrivateFileSync(folder)
    t.after(() => file.close())
    writeSync(file.fd, 'bytes')
    const { nlink, mode, size } = fstatSync(file.fd)
    assert.deepEqual([nlink, mode & 0o777, size], [0, 0o600, 5])
    assert.deepEqual(readdirSync(folder), [])
  })
})
