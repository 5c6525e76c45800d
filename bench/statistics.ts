/** The middle value, or the mean of the two in the middle. Throws RangeError for no values. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length / 2
  const [low, high] = [sorted[Math.ceil(middle) - 1], sorted[Math.floor(middle)]]
  if (low === undefined || high === undefined) throw new RangeError('A median needs at least one value.')
  return (low + high) / 2
}

/** The smallest value that at least this share of the values does not exceed. Throws RangeError for no values. */
export function percentile(values: readonly number[], share: number): number {
  const found = values.toSorted((a, b) => a - b)[Math.max(0, Math.ceil(values.length * share) - 1)]
  if (found === undefined) throw new RangeError('A percentile needs at least one value.')
  return found
}

/** The exponent k of the best fit y = c · x^k, by least squares of the logarithms. All values must be above 0. */
export function fitExponent(points: readonly (readonly [x: number, y: number])[]): number {
  const logs = points.map(([x, y]) => [Math.log(x), Math.log(y)] as const)
  const meanX = mean(logs.map(([x]) => x))
  const meanY = mean(logs.map(([, y]) => y))
  const covariance = mean(logs.map(([x, y]) => (x - meanX) * (y - meanY)))
  return covariance / mean(logs.map(([x]) => (x - meanX) ** 2))
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}
