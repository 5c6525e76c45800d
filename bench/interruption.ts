const interruption = new AbortController()

/**
 * From now on the first SIGINT or SIGTERM lets the deployment under way end, and what would come after it throw, so that
 * everything is cleaned up; the second ends the process as usual.
 */
export function heedSignals(): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => interruption.abort(new Error(`The bench was interrupted by ${signal}.`)))
  }
}

/** Throws the interruption when there was one. */
export function refuseWhenInterrupted(): void {
  interruption.signal.throwIfAborted()
}
