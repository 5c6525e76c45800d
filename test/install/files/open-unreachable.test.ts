import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { openDirectorySync } from '../../../src/install/files/open.ts'
import { temporaryDirectory } from '../../folders.ts'
import { watchCalls } from '../failing-calls.ts'

describe('openDirectorySync', () => {
  it('fails if it cannot find out whether the descriptor leads to the directory', t => {
    const folder = temporaryDirectory(t)
    const watch = watchCalls(t)
    const calls = watch(folder)
    openDirectorySync(folder).close()
    const nth = calls.findIndex(call => call.startsWith('statSync')) + 1
    const other = temporaryDirectory(t)
    watch(other, nth)
    assert.throws(() => openDirectorySync(other), { code: 'EIO' })
  })
})
