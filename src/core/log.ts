/** Reports the progress of a flow. The runner's log implements it; tests collect lines. */
export interface Log {
  /**
   * Opens a group of lines and closes the previous group. With `at once`, lines appear as they are written. Use it for
   * a group in which the run changes the host.
   */
  group(title: string, shown?: 'at once'): void
  /**
   * Says what the open group has done, so that a folded log shows it too. May be called several times. A log that folds
   * ignores the call while no group is open, so `result` must not be the only place for a fact that a reader needs.
   */
  did(result: string): void
  /** Closes the open group, if there is one. */
  end(): void
  info(line: string): void
  /** For a line that deserves attention, although nothing is wrong. */
  notice(line: string): void
  /** For a failure that does not change the outcome. */
  warning(line: string): void
  /** For a problem that somebody has to fix, even if the outcome does not show it. */
  error(line: string): void
}

/**
 * Returns the milliseconds of a clock that only moves forward, even when somebody sets the host's date.
 * `performance.now` reads the same clock, but Node.js would load about ten of its modules to provide that function.
 */
export function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1000 + nanoseconds / 1e6
}

/** Runs a generator to its end without pausing at its `yield`s, and returns its result. */
export function runToEnd<Result>(work: Generator<void, Result>): Result {
  for (;;) {
    const step = work.next()
    if (step.done === true) return step.value
  }
}
