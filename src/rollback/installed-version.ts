import type { InstalledRow } from '../install/host/installed/rows.ts'
import { newestProjectVersion } from '../install/reports/running-version.ts'
import { type RunningRollback, readInstalledRows } from './deployment.ts'

/**
 * Records the installed version before it is known whether that version can be rolled back, so that a refused run can
 * report it.
 */
export async function noteInstalledVersion(rollback: RunningRollback): Promise<readonly InstalledRow[]> {
  const { subject } = rollback.request
  const rows = readInstalledRows(rollback, subject)
  const version = subject.contract === 'project' ? newestProjectVersion(rows) : (rows[0]?.version ?? null)
  const slug = rollback.record.facts.slug ?? rows[0]?.slug ?? null
  await rollback.record.update({ slug, previous_version: version, rollback_of: version })
  return rows
}
