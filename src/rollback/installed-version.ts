import { findInstalled, readInstalled } from '../install/host/installed/host-record.ts'
import { placeOf } from '../install/host/installed/row-place.ts'
import type { InstalledRow } from '../install/host/installed/rows.ts'
import { newestProjectVersion } from '../install/reports/running-version.ts'
import type { RunningRollback } from './deployment.ts'
import type { Subject } from './request.ts'

/** Returns the rows of a rollback's subject in this action's record; none if the subject is not installed. */
export function readInstalledRows({ layout }: Pick<RunningRollback, 'layout'>, subject: Subject): InstalledRow[] {
  const rows = readInstalled(layout)
  if (subject.contract === 'project')
    return rows.filter(({ contract, slug }) => contract === 'project' && slug === subject.projectId)
  const row = findInstalled(rows, placeOf(subject))
  return row === undefined ? [] : [row]
}

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
