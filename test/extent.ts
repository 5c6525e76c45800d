import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'

/** The extent of the long tests: a sample on every machine, more in CI, everything on demand. */
const EXTENT = process.env['SWEEP'] === 'full' ? 'full' : process.env['CI'] === 'true' ? 'ci' : 'sample'

interface Extents<Value> {
  readonly sample: Value
  readonly ci: Value
  /** Set if CI does not try everything. */
  readonly full?: Value
}

export function byExtent<Value>({ sample, ci, full = ci }: Extents<Value>): Value {
  return { sample, ci, full }[EXTENT]
}

/** A sample of this many rows of a table, evenly spread. In CI and with `SWEEP=full`, all rows. */
export function sampled<Row>(rows: readonly Row[], count: number): readonly Row[] {
  if (EXTENT !== 'sample' || rows.length <= count) return rows
  const between = count === 1 ? 0 : (rows.length - 1) / (count - 1)
  return Array.from({ length: count }, (_, nth) => rows[Math.round(nth * between)] as Row)
}

/** The reason why a long test is left to CI, for its `skip`. */
export function whyLeftToCi(): string | false {
  return EXTENT === 'sample' && 'takes a long time: runs with CI=true or SWEEP=full'
}

/**
 * The reason why a test that mounts, traces, creates namespaces or works as several users is left to CI, for its
 * `skip`.
 */
export function whyRightsAreLeftToCi(): string | false {
  return EXTENT === 'sample' && 'needs root or strace: runs with CI=true or SWEEP=full'
}

/** The time after which a test counts as hanging. Even on a busy machine, no test takes nearly that long. */
export const HANG_LIMIT_MS = 900_000

/** The reason to skip a test if one of these programs is not installed; false if all are. */
export function missingTools(...tools: string[]): string | false {
  const missing = tools.filter(tool => !isInstalled(tool))
  return missing.length > 0 && `needs ${missing.join(', ')}`
}

function isInstalled(tool: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some(folder => isExecutable(join(folder, tool)))
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}
