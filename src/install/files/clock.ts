import { setTimeout } from 'node:timers/promises'
import { monotonicMs } from '../../core/monotonic.ts'

/** Time that only moves forward, even if somebody changes the host's clock. */
export interface Clock {
  /** Milliseconds since a fixed moment. */
  now(): number
  /** Waits for this many milliseconds; rejects with the signal's reason once the signal is aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}

export const systemClock: Clock = {
  now: monotonicMs,
  async sleep(ms, signal) {
    try {
      await setTimeout(ms, undefined, signal === undefined ? {} : { signal })
    } catch (error) {
      signal?.throwIfAborted()
      throw error
    }
  },
}
