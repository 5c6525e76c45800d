/**
 * Returns the milliseconds of a clock that only moves forward, even when somebody sets the host's date. The clock is
 * that of `performance.now`, a function for which Node.js would load about ten of its modules.
 */
export function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1000 + nanoseconds / 1e6
}
