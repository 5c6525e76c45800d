const interruption = new AbortController()

/**
 * From now on SIGINT and SIGTERM let the deployment under way end, and what would come after it throw, so that everything is cleaned up.
 */
export function heedSignals(): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      process.stderr.write(`${signal}: ending the deployment under way and cleaning up.\n`)
      interruption.abort(new Error(`The bench was interrupted by ${signal}.`))
    })
  }
}

/** The interruption, when there was one; what failed after it is its consequence. */
export function interruptionIfAny(): unknown {
  return interruption.signal.reason
}

/** Throws the interruption when there was one. */
export function refuseWhenInterrupted(): void {
  interruption.signal.throwIfAborted()
}
