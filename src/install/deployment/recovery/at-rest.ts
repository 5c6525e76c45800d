import { DeploymentError } from '../../../core/errors.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import type { Layout } from '../../host/layout.ts'
import { describeLiveHolder } from '../../host/locks/lock.ts'
import { requireNothingStranded } from '../../host/switchable.ts'
import type { Host } from '../../reports/host.ts'
import { type JournalRecord, REQUIRED } from '../../transaction/journal/journal-record.ts'
import { readJournal } from '../../transaction/journal/read-journal.ts'
import { readRecords, verifyRecoverable, verifyRestored } from './dead-run.ts'

/**
 * Checks that no other run is changing the host, and that none died after it had announced a change. Throws as
 * `findUnended` does. Also throws DeploymentError `inconsistent` if the rollback of an earlier run failed and the host
 * may have neither version intact. Throws `locked` if another run is changing the host, or was interrupted and can be
 * recovered.
 */
export async function requireAtRest(host: Host, signal: AbortSignal): Promise<void> {
  const { layout } = host
  const other = await findUnended(host, signal)
  if (other === undefined || ('records' in other && !hasAnnounced(other.records))) return
  if ('records' in other) verifyRestored(layout, other.records)
  throw new DeploymentError(
    'locked',
    `Another deployment below ${layout.root} is in progress or was interrupted, so the installed version is not known, and nothing was changed. Run again when that deployment has ended, or when the next deployment or dist/recover.js has recovered this host.`,
  )
}

/** The holder of the lock, which is changing the host, or the records of a dead run. */
export type Unended = { readonly holder: string } | { readonly records: readonly JournalRecord[] }

/**
 * Finds the run whose journal is on this host, if there is one. A live run that has announced nothing yet, because it
 * is still downloading, does not count. Throws DeploymentError `inconsistent` if that run
 * cannot be recovered, and as `readUnended` and `requireNothingStranded` do.
 */
export async function findUnended(host: Host, signal: AbortSignal): Promise<Unended | undefined> {
  requireNothingStranded(host.layout)
  const other = await readUnended(host.layout, signal)
  if (other !== undefined && 'records' in other) verifyRecoverable(host, other.records)
  return other
}

/**
 * Finds the same run as `findUnended`, even if it cannot be recovered. Throws as `describeLiveHolder` and `readRecords`
 * do.
 */
export async function readUnended(layout: Layout, signal: AbortSignal): Promise<Unended | undefined> {
  if (!pathExistsSync(layout.journal)) return undefined
  const holder = await describeLiveHolder(layout.lock, signal)
  if (holder !== undefined) return isAnnounced(layout) ? { holder } : undefined
  const records = readRecords(layout)
  return records.length === 0 ? undefined : { records }
}

/** True if the journal announces a change, even an undone one, or cannot be read. */
export function isAnnounced({ journal }: Layout): boolean {
  try {
    return hasAnnounced(readJournal(journal) ?? [])
  } catch {
    return true
  }
}

function hasAnnounced(records: readonly JournalRecord[]): boolean {
  return records.some(({ record }) => REQUIRED.has(record))
}
