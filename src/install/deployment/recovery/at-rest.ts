import { DeploymentError } from '../../../core/errors.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
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
type Unended = { readonly holder: string } | { readonly records: readonly JournalRecord[] }

/**
 * The run whose journal is there. Throws DeploymentError `inconsistent` where no run can recover that any more, and as
 * `requireNothingStranded` does.
 */
export async function findUnended(host: Host, signal: AbortSignal): Promise<Unended | undefined> {
  const { layout } = host
  requireNothingStranded(layout)
  if (!pathExistsSync(layout.journal)) return undefined
  const holder = await describeLiveHolder(layout.lock, signal)
  if (holder !== undefined) return { holder }
  const records = readRecords(layout)
  verifyRecoverable(host, records)
  return records.length === 0 ? undefined : { records }
}
