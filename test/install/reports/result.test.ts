import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { DryRunResult } from '../../../src/install/reports/result.ts'

describe('the result of a dry run', () => {
  it('lists all kinds of changes in one sentence', () => {
    const result = new DryRunResult()
    result.removals.push('')
    assert.equal(result.inWords(), 'remove 1 part')
    result.add('added', 'plugins/x/a', () => ({ after: '1 byte' }))
    assert.equal(result.inDetail(), 'remove 1 part and change 1 file: 1 added')
  })

  it('says "at least" if a comparison did not count all files to remove', () => {
    const result = new DryRunResult()
    for (const how of ['changed', 'removed'] as const) result.add(how, 'plugins/x/a', () => ({}))
    result.hasMore = true
    assert.equal(result.inDetail(), 'change at least 2 files: 1 changed, at least 1 removed')
    assert.equal(result.countInWords(3000, 'more file'), 'at least 3,000 more files')
  })
})
