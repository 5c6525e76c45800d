const interruption = new AbortController()

/** From now on, SIGINT and SIGTERM let the current deployment finish and stop the next, so that cleanup always runs. */
export function stopOnSignals(): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      process.stderr.write(`${signal}: finishing the current deployment, then cleaning up.\n`)
      interruption.abort(new Error(`${signal} interrupted the bench.`))
    })
  }
}

/** Returns the interruption, if there was one: it is the cause of every later error. */
export function interruptionIfAny(): unknown {
  return interruption.signal.reason
}

/** Throws the interruption if there was one. */
export function throwIfInterrupted(): void {
  interruption.signal.throwIfAborted()
}
