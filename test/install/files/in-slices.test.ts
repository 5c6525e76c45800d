import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { eachInSlices, inSlices } from '../../../src/install/files/in-slices.ts'
import { TimeSlice } from '../../../src/install/files/time-slice.ts'

const reason = new Error('cancelled')

/** A slice that has just ended, of work that has just been cancelled. */
function endedSlice(): TimeSlice {
  const controller = new AbortController()
  const slice = new TimeSlice(controller.signal)
  while (!slice.isOver());
  controller.abort(reason)
  return slice
}

async function* pieces(): AsyncGenerator<Buffer> {
  yield Buffer.from('a')
  yield Buffer.from('b')
}

describe('eachInSlices', () => {
  it('makes something of each item, in order', async () => {
    const made: number[] = []
    await eachInSlices([1, 2, 3], new TimeSlice(), item => made.push(item))
    assert.deepEqual(made, [1, 2, 3])
  })

  it('hears a signal between items', async () => {
    const made: number[] = []
    await assert.rejects(
      eachInSlices([1, 2, 3], endedSlice(), item => made.push(item)),
      reason,
    )
    assert.deepEqual(made, [1])
  })
})

describe('inSlices', () => {
  it('gives the same pieces', async () => {
    const seen: string[] = []
    for await (const piece of inSlices(pieces(), new TimeSlice())) seen.push(piece.toString())
    assert.deepEqual(seen, ['a', 'b'])
  })

  it('hears a signal before a piece', async () => {
    await assert.rejects(async () => {
      for await (const _ of inSlices(pieces(), endedSlice())) assert.fail('no piece was to come')
    }, reason)
  })
})
