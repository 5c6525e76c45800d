import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { OneAtATime } from '../../../hub/project/publishing/one-at-a-time.ts'

describe('work that is done one at a time', () => {
  it('never overlaps, keeps its order, and goes on after a failure', async () => {
    const queue = new OneAtATime()
    const seen: string[] = []
    const work = (name: string) => async () => {
      seen.push(`${name} starts`)
      await setImmediate()
      seen.push(`${name} ends`)
      if (name === 'a') throw new Error('failed')
      return name
    }
    const results = await Promise.allSettled(['a', 'b', 'c'].map(name => queue.run(work(name))))
    assert.deepEqual(
      seen,
      ['a', 'b', 'c'].flatMap(name => [`${name} starts`, `${name} ends`]),
    )
    assert.deepEqual(
      results.map(({ status }) => status),
      ['rejected', 'fulfilled', 'fulfilled'],
    )
  })
})
