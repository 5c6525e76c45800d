import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { addedInWords } from '../../../../src/install/host/trees/drift-check.ts'
import { MAX_ADDED } from '../../../../src/install/host/trees/tree-comparison.ts'

describe('addedInWords', () => {
  for (const [count, words] of [
    [1, '1 file was added on this host'],
    [2, '2 files were added on this host'],
    [MAX_ADDED, 'at least 10,000 files were added on this host'],
  ] as const)
    it(`describes ${count}`, () => assert.equal(addedInWords(count), words))
})
