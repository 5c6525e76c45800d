import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, it } from 'node:test'
import { endlessGrace, startGrace } from '../../../src/install/files/grace.ts'

const AT_ONCE = { comparing: 1, restoring: 2, reporting: 3 }
const LATER = ['comparing', 'restoring', 'reporting'] as const

describe('startGrace', () => {
  for (const when of ['before', 'after']) {
    it(`ends the periods of grace one after another if the cancel comes ${when} the start`, async () => {
      const cancel = new AbortController()
      if (when === 'before') cancel.abort()
      const grace = startGrace(cancel.signal, AT_ONCE)
      const ended: string[] = []
      for (const name of LATER) grace[name].addEventListener('abort', () => ended.push(name))
      // The timers of the grace periods do not keep the process alive, so this timer does.
      const alive = setInterval(() => {}, 1000)
      const all = Promise.all(LATER.map(name => once(grace[name], 'abort')))
      cancel.abort()
      await all
      clearInterval(alive)
      assert.deepEqual(ended, [...LATER])
    })
  }

  it('aborts only `cancelled` at once, and nothing without a cancel', () => {
    const cancel = new AbortController()
    for (const grace of [startGrace(cancel.signal, AT_ONCE), endlessGrace()])
      assert.ok(LATER.every(name => !grace[name].aborted))
    const grace = startGrace(cancel.signal)
    cancel.abort()
    assert.deepEqual([grace.cancelled.aborted, ...LATER.map(name => grace[name].aborted)], [true, false, false, false])
  })
})
