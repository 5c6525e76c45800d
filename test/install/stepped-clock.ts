import type { Clock } from '../../src/install/files/clock.ts'

/** A clock that moves forward only by its sleeps, which take no real time. */
export function createSteppedClock(): Clock {
  let nowMs = 0
  return {
    now: () => nowMs,
    async sleep(ms, signal) {
      signal?.throwIfAborted()
      nowMs += ms
    },
  }
}
