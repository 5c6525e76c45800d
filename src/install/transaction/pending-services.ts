import { isSystemError, toHostError } from '../files/system-errors.ts'
import { readInstalled, recordPending } from '../host/installed/host-record.ts'
import { isFrom } from '../host/installed/origin.ts'
import type { InstalledRow } from '../host/installed/rows.ts'
import type { Layout } from '../host/layout.ts'
import type { DeploymentFacts } from './facts.ts'

/**
 * The services that a run or a recovery restored, and those that it could not restore or did not reach, by the names
 * that state files have for them. The project-wide unit runs all parts of the deployment.
 */
export interface Restorations {
  readonly of: Pick<DeploymentFacts, 'contract' | 'slug'>
  readonly restored?: readonly (string | null)[]
  readonly unrestored?: readonly (string | null)[]
}

/** Records in the rows of the parts which services are pending. The record is durable when this function returns. */
export async function noteRestorations(layout: Layout, restorations: Restorations): Promise<void> {
  try {
    await recordPending(layout, row => isPendingAfter(row, restorations))
  } catch (error) {
    throw isSystemError(error)
      ? toHostError(error, `recording in ${layout.installed} which services were not restored`)
      : error
  }
}

/** True if a service of the row's part is pending after these restorations. */
export function isPendingAfter(row: InstalledRow, { of, restored = [], unrestored = [] }: Restorations): boolean {
  const runs = (part: string | null): boolean => isRunBy(row, part, of)
  return unrestored.some(runs) || (row.service_pending === true && !restored.some(runs))
}

/** True if an earlier rollback or recovery left this service pending. */
export function isPending(layout: Layout, part: string | null, of: Restorations['of']): boolean {
  return readInstalled(layout).some(row => row.service_pending === true && isRunBy(row, part, of))
}

/** True if the service of this name runs the row's part. The project-wide unit runs all parts of the deployment `of`. */
export function isRunBy(row: InstalledRow, part: string | null, { contract, slug }: Restorations['of']): boolean {
  if (part !== null) return row.id === part
  return slug !== null && isFrom(row, { contract, slug })
}
