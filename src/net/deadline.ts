import { ArtifactError } from '../core/errors.ts'

export interface Deadline {
  /** Aborted when the time is up or the caller cancels; its reason is what the operation rejects with. */
  signal: AbortSignal
  remainingMs: () => number
}

/**
 * Runs an operation that must be over after `ms` milliseconds, everything it waits for included.
 * Rejects with ArtifactError `timeout` when it is not, and with the reason of `cancel` when that is aborted first.
 */
export async function withDeadline<T>(
  ms: number,
  origin: string,
  cancel: AbortSignal | undefined,
  operation: (deadline: Deadline) => Promise<T>,
): Promise<T> {
  cancel?.throwIfAborted()
  const expiry = new AbortController()
  const timer = setTimeout(() => expiry.abort(overdue(ms, origin)), ms)
  const endsAt = performance.now() + ms
  const signal = cancel === undefined ? expiry.signal : AbortSignal.any([cancel, expiry.signal])
  try {
    return await operation({ signal, remainingMs: () => endsAt - performance.now() })
  } catch (error) {
    throw signal.aborted ? signal.reason : error
  } finally {
    clearTimeout(timer)
  }
}

function overdue(ms: number, origin: string): ArtifactError {
  return new ArtifactError(
    'timeout',
    `The exchange with ${origin} was not over after ${ms / 1000} s in all: check the server and the network, or allow it more time.`,
  )
}
