const interruption = new AbortController()

/** After this call, SIGINT and SIGTERM make the bench throw before its next step, so that its cleanup always runs. */
export function stopOnSignals(): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      process.stderr.write(`${signal}: waiting for the current step to end, then cleaning up.\n`)
      interruption.abort(new Error(`${signal} interrupted the bench.`))
    })
  }
}

/** Returns the interruption, if there was one. In that case, it is the cause of every later error. */
export function interruptionIfAny(): unknown {
  return interruption.signal.reason
}

export function throwIfInterrupted(): void {
  interruption.signal.throwIfAborted()
}
