import assert from 'node:assert/strict'
import { it } from 'node:test'
import { SourceBudget } from '../../src/sources/source-budget.ts'

it('lets the sources of a run share the limits of time, bytes and entries', () => {
  let now = 1000
  const extraction = { maxExtractedBytes: 100, maxEntries: 10 }
  const budget = new SourceBudget({ downloadTimeoutMs: 500, maxArtifactBytes: 50, extraction }, () => now)
  assert.deepEqual(budget.left, { downloadTimeoutMs: 500, maxArtifactBytes: 50, extraction })
  now += 200
  budget.spend({ received: 20, tree: { bytes: 60, files: [1, 2], symlinks: [3], directories: [4] } })
  const left = { maxExtractedBytes: 40, maxEntries: 6 }
  assert.deepEqual(budget.left, { downloadTimeoutMs: 300, maxArtifactBytes: 30, extraction: left })
  now += 400
  budget.spend({ received: 60, tree: { bytes: 60, files: Array(7).fill(0), symlinks: [], directories: [] } })
  const nothing = { maxExtractedBytes: 0, maxEntries: 0 }
  assert.deepEqual(budget.left, { downloadTimeoutMs: 1, maxArtifactBytes: 0, extraction: nothing })
})
