/** Runs a generator to its end without pausing at its `yield`s, and returns its result. */
export function runToEnd<Result>(work: Generator<void, Result>): Result {
  for (;;) {
    const step = work.next()
    if (step.done === true) return step.value
  }
}
