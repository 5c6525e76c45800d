/**
 * Returns the milliseconds of a clock that only moves forward, even when somebody sets the host's date.
 * `performance.now` reads the same clock, but Node.js would load about ten of its modules to provide that function.
 */
export function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1000 + nanoseconds / 1e6
}
