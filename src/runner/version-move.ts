import type { LocalReport } from '../install/reports/local-report.ts'

/** From which version to which a deployment that succeeded has gone. */
export function describeMove({ previous_version: before, changed, drift = [], ...report }: LocalReport): string {
  const after = report.version ?? report.requested_version ?? 'unknown'
  if (before === null) return `first install of ${after}`
  if (before !== after) return `${before} → ${after}`
  if (drift.length === 0) return `${after} was already installed`
  return changed ? `${after} was repaired` : `${after} is installed, but its files differ from what was installed`
}
