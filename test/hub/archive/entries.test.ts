import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { boundedTar, EntryList, MAX_ENTRIES } from '../../../hub/archive/entries.ts'

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

async function* pieces(...sizes: number[]): AsyncGenerator<Buffer> {
  for (const size of sizes) yield Buffer.alloc(size)
}

async function passedSizes(...sizes: number[]): Promise<number[]> {
  const passed: number[] = []
  for await (const { length } of boundedTar(pieces(...sizes), { maxBytes: 100 })) passed.push(length)
  return passed
}

describe('boundedTar', () => {
  it('passes on a tar up to the limit', async () => {
    assert.deepEqual(await passedSizes(60, 40), [60, 40])
  })

  it('refuses a tar beyond the limit', async () => {
    await assert.rejects(passedSizes(60, 41), {
      message: 'The archive has a tar of more than 100 bytes, so hosts refuse it by default: remove some files.',
    })
  })
})
