/** Runs work that pauses at each `yield` to its end, without a pause, and returns its result. */
export function runToEnd<Result>(work: Generator<void, Result>): Result {
  for (;;) {
    const step = work.next()
    if (step.done === true) return step.value
  }
}
