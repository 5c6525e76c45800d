/** Throws if `found` is not `expected`; the error ends the demo. */
export function expectEqual<T>(what: string, found: T, expected: T): void {
  if (found !== expected) {
    throw new Error(`Expected ${what} to be ${JSON.stringify(expected)}, found ${JSON.stringify(found)}.`)
  }
}
