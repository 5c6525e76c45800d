import type { StartTimer } from '../../src/net/settings.ts'

/** Timers that expire only when the test calls `expire`. */
export interface ManualTimers {
  startTimer: StartTimer
  /** The length of every timer so far, in milliseconds and in order. */
  started: number[]
  /** The lengths of the timers that are running. */
  running: () => number[]
  /** Expires the running timer of this length. Throws if no such timer is running. */
  expire: (ms: number) => void
}

export function createManualTimers(): ManualTimers {
  const started: number[] = []
  const timers = new Set<{ ms: number; expire: () => void }>()
  return {
    startTimer: (ms, expire) => {
      const timer = { ms, expire }
      timers.add(timer)
      started.push(ms)
      return () => timers.delete(timer)
    },
    started,
    running: () => [...timers].map(timer => timer.ms),
    expire: ms => {
      const timer = [...timers].find(timer => timer.ms === ms)
      if (timer === undefined) throw new Error(`Expected a running timer of ${ms} ms, found none.`)
      timers.delete(timer)
      timer.expire()
    },
  }
}
