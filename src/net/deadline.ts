import { ArtifactError } from '../core/errors.ts'
import { monotonicMs } from '../core/monotonic.ts'
import type { WireSettings } from './settings.ts'

/** The time that the exchange with an origin may take, including retries and waits. */
export interface TimeLimit {
  origin: string
  ms: number
  /** The input that sets the limit, if one does. */
  input?: string | undefined
}

export interface Deadline {
  /** Aborted when the time is up or the caller cancels. */
  signal: AbortSignal
  remainingMs: () => number
}

/**
 * Runs an operation within its time limit. Rejects with ArtifactError `timeout` if the operation takes longer, and with
 * the reason of the settings' signal if that signal is aborted first. The operation must stop when the deadline's
 * signal is aborted.
 */
export async function withDeadline<T>(
  limit: TimeLimit,
  settings: Pick<WireSettings, 'signal' | 'startTimer'>,
  operation: (deadline: Deadline) => Promise<T>,
): Promise<T> {
  settings.signal.throwIfAborted()
  const expiry = new AbortController()
  const stopTimer = settings.startTimer(limit.ms, () => expiry.abort(overdue(limit)))
  const endsAt = monotonicMs() + limit.ms
  const signal = AbortSignal.any([settings.signal, expiry.signal])
  try {
    return await operation({ signal, remainingMs: () => endsAt - monotonicMs() })
  } catch (error) {
    throw signal.aborted ? signal.reason : error
  } finally {
    stopTimer()
  }
}

function overdue({ origin, ms, input }: TimeLimit): ArtifactError {
  const raise = input === undefined ? '' : `, or raise ${input}`
  return new ArtifactError(
    'timeout',
    `The exchange with ${origin} did not finish within ${Number((ms / 1000).toFixed(1))} s in all: check the server and the network${raise}.`,
  )
}
