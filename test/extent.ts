/** How much the long tests try: a sample on every machine, more in CI, everything on demand. */
const EXTENT = process.env['SWEEP'] === 'full' ? 'full' : process.env['CI'] === 'true' ? 'ci' : 'sample'

interface Extents<Value> {
  readonly sample: Value
  readonly ci: Value
  /** Where CI does not try everything. */
  readonly full?: Value
}

export function byExtent<Value>({ sample, ci, full = ci }: Extents<Value>): Value {
  return { sample, ci, full }[EXTENT]
}

/** Why a long test is left to CI, for its `skip`. */
export function whyLeftToCi(): string | false {
  return EXTENT === 'sample' && 'takes long: runs with CI=true or SWEEP=full'
}
