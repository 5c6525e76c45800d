import { DeploymentError } from '../../../core/errors.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import type { Layout } from '../../host/layout.ts'
import { describeLiveHolder } from '../../host/locks/lock.ts'
import { requireNothingStranded } from '../../host/switchable.ts'
import type { Host } from '../../reports/host.ts'
import type { JournalRecord } from '../../transaction/journal/journal-record.ts'
import { readRecords, verifyRecoverable, verifyRestored } from './dead-run.ts'

/**
 * Checks that no other run is in progress, and that none has left anything to recover. Throws DeploymentError
 * `inconsistent` if an earlier run failed to recover the host and left it with neither version intact; otherwise throws
 * `locked`.
 */
export async function requireAtRest(host: Host, signal: AbortSignal): Promise<void> {
  const { layout } = host
  const other = await findUnended(host, signal)
  if (other === undefined) return
  if ('records' in other) verifyRestored(layout, other.records)
  throw new DeploymentError(
    'locked',
    `Another deployment below ${layout.root} is in progress or was interrupted, so the installed version is not known, and nothing was changed. Run again when it has ended or been recovered.`,
  )
}

/** The holder of the lock, or the records of a dead run. */
export type Unended = { readonly holder: string } | { readonly records: readonly JournalRecord[] }

/**
 * Finds the run whose journal exists. Throws DeploymentError `inconsistent` if no run can recover it, and as
 * `requireNothingStranded` does.
 */
export async function findUnended(host: Host, signal: AbortSignal): Promise<Unended | undefined> {
  requireNothingStranded(host.layout)
  const other = await readUnended(host.layout, signal)
  if (other !== undefined && 'records' in other) verifyRecoverable(host, other.records)
  return other
}

/** Finds the same run even if it cannot be recovered. Throws as `describeLiveHolder` and `readRecords` do. */
export async function readUnended(layout: Layout, signal: AbortSignal): Promise<Unended | undefined> {
  if (!pathExistsSync(layout.journal)) return undefined
  const holder = await describeLiveHolder(layout.lock, signal)
  if (holder !== undefined) return { holder }
  const records = readRecords(layout)
  return records.length === 0 ? undefined : { records }
}
