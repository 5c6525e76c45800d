import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { addedInWords } from '../../../../src/install/host/trees/drift-check.ts'

describe('addedInWords', () => {
  for (const [count, isLeast, words] of [
    [1, false, '1 file was added on this host'],
    [12_000, false, '12,000 files were added on this host'],
    [12_000, true, 'at least 12,000 files were added on this host'],
  ] as const)
    it(`says that ${words}`, () => assert.equal(addedInWords(count, isLeast), words))
})
