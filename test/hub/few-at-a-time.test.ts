import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { FewAtATime } from '../../hub/few-at-a-time.ts'

describe('work that is done one at a time', () => {
  it('never overlaps, keeps its order, and goes on after a failure', async () => {
    const { seen, settled } = await runAll(new FewAtATime(1), ['a', 'b', 'c'])
    assert.deepEqual(
      seen,
      ['a', 'b', 'c'].flatMap(name => [`${name} starts`, `${name} ends`]),
    )
    assert.deepEqual(settled, ['rejected', 'fulfilled', 'fulfilled'])
  })
})

describe('work that is done two at a time', () => {
  it('overlaps, but never three at once, even if some arrives after the rest has ended', async () => {
    const two = new FewAtATime(2)
    const expected = ['a starts', 'b starts', 'a ends', 'c starts', 'b ends', 'd starts', 'c ends', 'd ends']
    for (let round = 0; round < 2; round++) assert.deepEqual((await runAll(two, ['a', 'b', 'c', 'd'])).seen, expected)
  })
})

/** Runs one piece of work for each name. The work for `a` fails. */
async function runAll(queue: FewAtATime, names: readonly string[]) {
  const seen: string[] = []
  const work = (name: string) => async () => {
    seen.push(`${name} starts`)
    await setImmediate()
    seen.push(`${name} ends`)
    if (name === 'a') throw new Error('failed')
  }
  const settled = await Promise.allSettled(names.map(name => queue.run(work(name))))
  return { seen, settled: settled.map(({ status }) => status) }
}
