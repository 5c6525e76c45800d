import { DeploymentError, toDeployError } from '../../core/errors.ts'
import { statesAfter } from '../../core/state-machine.ts'
import { asSentence, cleanForeignText } from '../../core/text.ts'
import { directoriesIn, placesIn } from '../changes/change.ts'
import { toHostError } from '../files/errors.ts'
import { pathExistsSync } from '../files/walk.ts'
import { type Layout, type Place, placeOf } from '../host/layout.ts'
import { describeLiveHolder } from '../host/lock.ts'
import { readInstalled } from '../host/record.ts'
import { type DeploymentEnd, flowOf, type RollbackFacts } from '../journal/facts.ts'
import type { Journal } from '../journal/journal.ts'
import { JournalDamage } from '../journal/line.ts'
import { readJournal, readUnprovenChanges } from '../journal/read.ts'
import {
  announcedIn,
  type BeginRecord,
  findCommit,
  type JournalRecord,
  pendingChanges,
  REQUIRED,
} from '../journal/records.ts'
import type { HostContext } from '../reports/host.ts'
import type { DeploymentRecord } from '../transaction/record.ts'
import { isAnyMade } from '../transaction/undo.ts'

const MAX_RECOVERIES = 5

/** A deployment whose run is dead, as described in the run's journal. */
export interface DeadRun {
  readonly begin: BeginRecord
  readonly records: readonly JournalRecord[]
  /** Open, so that the recovery can append records. */
  readonly journal: Journal
  readonly record: DeploymentRecord
}

/**
 * Reads the records of a dead run. Returns no records if the run left no journal. Throws DeploymentError `inconsistent`
 * for a journal that is damaged, cannot be read, or was not written by this action.
 */
export function readRecords({ root, journal: path }: Layout): readonly JournalRecord[] {
  try {
    const records = readJournal(path) ?? []
    if (isAnyMade(root, readUnprovenChanges(path)))
      throw new JournalDamage('a change was made whose announcement follows a torn record')
    return records
  } catch (error) {
    if (!(error instanceof JournalDamage)) throw unreadableJournal(path, error)
    throw new DeploymentError(
      'inconsistent',
      `The journal ${path} of an interrupted deployment is damaged (${cleanForeignText(error.message)}), so nothing was changed. Restore plugins, services and kept paths by hand from .hub-deploy/snapshots and .hub-deploy/staging, move the journal away, and run again (docs/operating.md, "The journal is damaged").`,
      { cause: toDeployError(error) },
    )
  }
}

function unreadableJournal(path: string, error: unknown): DeploymentError {
  const { message } = toHostError(error, `reading ${path}`)
  return new DeploymentError(
    'inconsistent',
    `The journal ${path} of an interrupted deployment cannot be read, so nothing was changed. ${message} Only a run that can read the journal knows whether the host must be repaired.`,
    { cause: toDeployError(error) },
  )
}

/** Refuses a dead run that 5 other runs could not roll back: throws DeploymentError `inconsistent`. */
export function verifyRecoverable(host: HostContext, records: readonly JournalRecord[]): void {
  const [begin] = records
  if (begin?.record !== 'begin' || !needsRollback(records) || countAttempts(host, records) < MAX_RECOVERIES) return
  const { deployment_id: id, slug } = begin.facts
  throw new DeploymentError(
    'inconsistent',
    `The deployment ${id} of ${slug} could not be rolled back in ${MAX_RECOVERIES} attempts, so no further attempt is made: read its report in ${host.layout.reports} and its journal ${host.layout.journal}, repair the host by hand, then remove the journal.`,
  )
}

/** Refuses a dead run whose rollback failed and whose changes may remain: throws DeploymentError `inconsistent`. */
function requireRestored(layout: Layout, records: readonly JournalRecord[]): void {
  const rollback = findEnd(records)?.rollback
  const [begin] = records
  if (begin?.record === 'begin' && rollback?.restored === false && isInDoubt(layout))
    throw stillInconsistent(begin, rollback)
}

export function stillInconsistent({ facts }: BeginRecord, { problems }: RollbackFacts): DeploymentError {
  return new DeploymentError(
    'inconsistent',
    `The interrupted deployment ${facts.deployment_id} of ${facts.slug} could not be rolled back, so nothing new is deployed: ${problems.map(asSentence).join(' ')}`,
  )
}

/**
 * True if files may have to be rolled back: the journal has no commit, and no end after which all files are restored.
 * Only the attempts at such a rollback are limited.
 */
export function needsRollback(records: readonly JournalRecord[]): boolean {
  const known = findEnd(records)
  return findCommit(records) === undefined && (known === undefined || known.rollback?.restored === false)
}

/**
 * True if this host may have neither version intact, according to the journal of a dead run, or if that journal cannot
 * be read. After a commit, the host has exactly the new version. If the announced changes were never made, or were
 * undone, the host has exactly the old version. Changes nothing.
 */
export function isInDoubt({ root, journal }: Layout): boolean {
  try {
    const records = readJournal(journal) ?? []
    if (isAnyMade(root, readUnprovenChanges(journal))) return true
    return findCommit(records) === undefined && isAnyMade(root, pendingChanges(records))
  } catch {
    return true
  }
}

/** Returns the places that a run has moved trees into or out of, or was about to. */
export function changedPlaces(records: readonly JournalRecord[]): Place[] {
  return placesIn(records.flatMap(announcedIn))
}

/** Returns the directories of parts, relative to the project root, in which a run has changed something, or was about to. */
export function changedDirectories(layout: Layout, records: readonly JournalRecord[]): string[] {
  return directoriesIn(records.flatMap(announcedIn), tryToFindPlaces(layout))
}

/** Returns no places if the record cannot be read: whatever needs the record reports that. */
function tryToFindPlaces(layout: Layout): readonly Place[] {
  try {
    return readInstalled(layout).map(placeOf)
  } catch {
    return []
  }
}

/** Returns how many other runs have begun to recover this dead run. A main step and its post step count as one run. */
export function countAttempts({ run }: HostContext, records: readonly JournalRecord[]): number {
  const runs = new Set(records.flatMap(entry => (entry.record === 'recovery' ? [entry.by] : [])))
  runs.delete(run.id)
  return runs.size
}

/**
 * Returns the number of attempts after which the hub accepted the report of the newest end; undefined if the hub has
 * not accepted that report.
 */
export function findAcceptedAttempts(records: readonly JournalRecord[]): number | undefined {
  const last = records.findLast(entry => entry.record === 'reported' || entry.record === 'end')
  return last?.record === 'reported' ? last.attempts : undefined
}

/** Returns the end that the run, or an earlier recovery of it, has recorded. */
export function findEnd(records: readonly JournalRecord[]): DeploymentEnd | undefined {
  return records.findLast(entry => entry.record === 'end')?.end
}

/** True if the run, or an earlier recovery of it, has left services to restore. */
export function wasUnfinished(records: readonly JournalRecord[]): boolean {
  return records.findLast(entry => entry.record === 'end')?.unfinished === true
}

/** Returns the state in which a run was interrupted: its last state that does not end its flow. */
export function interruptedState({ flows }: Pick<HostContext, 'flows'>, { facts, states }: DeploymentRecord): string {
  const flow = flows[flowOf(facts)]
  return states.findLast(({ state }) => statesAfter(flow, state)?.length !== 0)?.state ?? 'pending'
}

/**
 * Checks that no other run is changing the host, and that none died after it had announced a change. Throws as
 * `findUnended` does. Also throws DeploymentError `inconsistent` if the rollback of an earlier run failed and the host
 * may have neither version intact. Throws `locked` if another run is changing the host, or was interrupted and can be
 * recovered.
 */
export async function requireAtRest(host: HostContext, signal: AbortSignal): Promise<void> {
  const { layout } = host
  const other = await findUnended(host, signal)
  if (other === undefined || ('records' in other && !hasAnnounced(other.records))) return
  if ('records' in other) requireRestored(layout, other.records)
  throw new DeploymentError(
    'locked',
    `Another deployment below ${layout.root} is in progress or was interrupted, so the installed version is not known, and nothing was changed. Run again when that deployment has ended, or when the next deployment or dist/recover.js has recovered this host.`,
  )
}

/** The holder of the lock, which is changing the host, or the records of a dead run. */
type Unended = { readonly holder: string } | { readonly records: readonly JournalRecord[] }

/**
 * Finds the run whose journal is on this host, if there is one. A live run that has announced nothing yet, because it
 * is still downloading, does not count. Throws DeploymentError `inconsistent` if that run
 * cannot be recovered, and as `readUnended` does.
 */
export async function findUnended(host: HostContext, signal: AbortSignal): Promise<Unended | undefined> {
  const other = await readUnended(host.layout, signal)
  if (other !== undefined && 'records' in other) verifyRecoverable(host, other.records)
  return other
}

/** Finds the same run as `findUnended`, even if it cannot be recovered. */
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
