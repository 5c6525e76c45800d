import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { TimeSlice } from '../../../src/install/files/time-slice.ts'

const reason = new Error('cancelled')

/** A slice that is over, for work that has just been cancelled. */
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

describe('TimeSlice.forEach', () => {
  it('handles each item, in order', async () => {
    const made: number[] = []
    await new TimeSlice().forEach([1, 2, 3], item => made.push(item))
    assert.deepEqual(made, [1, 2, 3])
  })

  it('notices an abort between items', async () => {
    const made: number[] = []
    await assert.rejects(
      endedSlice().forEach([1, 2, 3], item => made.push(item)),
      reason,
    )
    assert.deepEqual(made, [1])
  })
})

describe('TimeSlice.run', () => {
  function* work(done: number[]): Generator<void, string> {
    for (let step = 1; step <= 3; step++) {
      done.push(step)
      yield
    }
    return 'result'
  }

  it('does all of the work and returns its result', async () => {
    const done: number[] = []
    assert.equal(await new TimeSlice().run(work(done)), 'result')
    assert.deepEqual(done, [1, 2, 3])
  })

  it('notices an abort at a pause', async () => {
    const done: number[] = []
    await assert.rejects(endedSlice().run(work(done)), reason)
    assert.deepEqual(done, [1])
  })
})

describe('TimeSlice.pace', () => {
  it('yields the same pieces', async () => {
    const seen: string[] = []
    for await (const piece of new TimeSlice().pace(pieces())) seen.push(piece.toString())
    assert.deepEqual(seen, ['a', 'b'])
  })

  it('notices an abort before a piece', async () => {
    await assert.rejects(async () => {
      for await (const _ of endedSlice().pace(pieces())) assert.fail('a piece came after the abort')
    }, reason)
  })
})
