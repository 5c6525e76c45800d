import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { EntryList, MAX_ENTRIES } from '../../hub/archive/archive-entry.ts'

describe('EntryList', () => {
  it('refuses more entries than hosts unpack before it keeps them', () => {
    const list = new EntryList()
    for (let nth = 0; nth < MAX_ENTRIES; nth++) list.add({ name: 'same', type: 'file' })
    assert.throws(() => list.add({ name: 'same', type: 'file' }), {
      status: 400,
      message: /^The archive has more than 100000 entries, /,
    })
    assert.equal(list.entries.length, MAX_ENTRIES)
  })
})
