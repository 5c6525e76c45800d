/**
 * Returns the milliseconds of a clock that only moves forward, even when somebody sets the host's date. This is the
 * clock of `performance.now`. To provide that function, Node.js would load about ten of its modules.
 */
export function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1000 + nanoseconds / 1e6
}
