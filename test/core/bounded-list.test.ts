import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { fitList } from '../../src/core/bounded-list.ts'

describe('fitList', () => {
  it('takes the first items that fit, up to the last character', () => {
    assert.deepEqual(fitList([1, 2, 'ab'], '[1,2,"ab"]'.length), { json: '[1,2,"ab"]', omitted: 0 })
    assert.deepEqual(fitList([1, 2, 'ab'], '[1,2,"ab"]'.length - 1), { json: '[1,2]', omitted: 1 })
    assert.deepEqual(fitList([1, 2], '[1,2]'.length - 1), { json: '[1]', omitted: 1 })
    assert.deepEqual(fitList(['abc'], 2), { json: '[]', omitted: 1 })
  })
})
