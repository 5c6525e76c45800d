import { DeploymentError } from '../../../core/errors.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import type { Layout } from '../../host/layout.ts'
import { describeLiveHolder } from '../../host/locks/lock.ts'
import { requireNothingStranded } from '../../host/switchable.ts'
import type { Host } from '../../reports/host.ts'
import type { JournalRecord } from '../../transaction/journal/journal-record.ts'
import { readRecords, verifyRecoverable, verifyRestored } from './dead-run.ts'

/**
 * Checks that no other run is at work, and that none has left anything to recover. Throws DeploymentError `inconsistent`
 * where the host may run neither version whole, as a run has found that could not recover it, and otherwise `locked`.
 */
export async function requireAtRest(host: Host, signal: AbortSignal): Promise<void> {
  const { layout } = host
  const other = await findUnended(host, signal)
  if (other === undefined) return
  if ('records' in other) verifyRestored(layout, other.records)
  throw new DeploymentError(
    'locked',
    `Another deployment below ${layout.root} is in progress or was interrupted, so the installed version is not known, and nothing was changed. Run again when it has ended or was recovered.`,
  )
}

/** Who holds the lock, or what a dead run has recorded. */
export type Unended = { readonly holder: string } | { readonly records: readonly JournalRecord[] }

/**
 * The run whose journal is there. Throws DeploymentError `inconsistent` where no run can recover that any more, and as
 * `requireNothingStranded` does.
 */
export async function findUnended(host: Host, signal: AbortSignal): Promise<Unended | undefined> {
  requireNothingStranded(host.layout)
  const other = await readUnended(host.layout, signal)
  if (other !== undefined && 'records' in other) verifyRecoverable(host, other.records)
  return other
}

/** The same, whether or not it can be recovered. Throws as `describeLiveHolder` and `readRecords` do. */
export async function readUnended(layout: Layout, signal: AbortSignal): Promise<Unended | undefined> {
  if (!pathExistsSync(layout.journal)) return undefined
  const holder = await describeLiveHolder(layout.lock, signal)
  if (holder !== undefined) return { holder }
  const records = readRecords(layout)
  return records.length === 0 ? undefined : { records }
}
