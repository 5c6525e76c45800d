import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { type ExtractedFile, FileList } from '../../../src/install/files/extracted-tree.ts'

const FILES: readonly ExtractedFile[] = [
  { path: 'a/\u00e9', size: 0, mode: 0o644, sha256: '0'.repeat(64), stamp: '1\t-2\t3' },
  { path: 'b', size: 2 ** 40, mode: 0o755, sha256: 'f'.repeat(64) },
  { path: 'c', size: 3, mode: 0o644, sha256: '7'.repeat(64), stamp: `${2n ** 64n - 1n}\t4\t5` },
]

describe('a list of files', () => {
  it('has each file at its place, in whatever order the files are set', () => {
    const list = new FileList(FILES.length)
    for (const place of [2, 0, 1]) list.set(place, FILES[place] as ExtractedFile)
    assert.equal(list.length, FILES.length)
    assert.deepEqual([...list], FILES)
    assert.deepEqual([...list], FILES)
  })
})
