import { DeploymentError, toDeployError } from '../../../core/errors.ts'
import { cleanForeignText } from '../../../core/foreign-text.ts'
import { asSentence } from '../../../core/sentence.ts'
import { statesAfter } from '../../../core/state-machine.ts'
import { toHostError } from '../../files/system-errors.ts'
import type { Layout, Place } from '../../host/layout.ts'
import type { Host } from '../../reports/host.ts'
import { placesIn } from '../../transaction/changes/change.ts'
import type { DeploymentEnd, RollbackFacts } from '../../transaction/end.ts'
import { flowOf } from '../../transaction/facts.ts'
import { announcedIn } from '../../transaction/journal/announcement.ts'
import type { Journal } from '../../transaction/journal/journal.ts'
import { JournalDamage } from '../../transaction/journal/journal-line.ts'
import {
  type BeginRecord,
  findCommit,
  type JournalRecord,
  pendingChanges,
} from '../../transaction/journal/journal-record.ts'
import { readJournal, readUnprovenChanges } from '../../transaction/journal/read-journal.ts'
import type { DeploymentRecord } from '../../transaction/record.ts'
import { isAnyMade } from '../../transaction/undo.ts'

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
    if (!(error instanceof JournalDamage)) throw unreadable(path, error)
    throw new DeploymentError(
      'inconsistent',
      `The journal ${path} of an interrupted deployment is damaged (${cleanForeignText(error.message)}), so nothing was changed. Restore plugins, services and kept paths by hand from .hub-deploy/snapshots and .hub-deploy/staging, move the journal away, and run again (docs/operating.md, "The journal is damaged").`,
      { cause: toDeployError(error) },
    )
  }
}

function unreadable(path: string, error: unknown): DeploymentError {
  const { message } = toHostError(error, `reading ${path}`)
  return new DeploymentError(
    'inconsistent',
    `The journal ${path} of an interrupted deployment cannot be read, so nothing was changed. ${message} Only a run that can read the journal knows whether the host must be repaired.`,
    { cause: toDeployError(error) },
  )
}

/** Refuses a dead run that 5 other runs could not roll back: throws DeploymentError `inconsistent`. */
export function verifyRecoverable(host: Host, records: readonly JournalRecord[]): void {
  const [begin] = records
  if (begin?.record !== 'begin' || !needsRollback(records) || countAttempts(host, records) < MAX_RECOVERIES) return
  const { deployment_id: id, slug } = begin.facts
  throw new DeploymentError(
    'inconsistent',
    `The deployment ${id} of ${slug} could not be rolled back in ${MAX_RECOVERIES} attempts, so no further attempt is made: read its report in ${host.layout.reports} and its journal ${host.layout.journal}, repair the host by hand, then remove the journal.`,
  )
}

/** Refuses a dead run whose rollback failed and whose changes may remain: throws DeploymentError `inconsistent`. */
export function verifyRestored(layout: Layout, records: readonly JournalRecord[]): void {
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

/** Returns how many other runs have begun to recover this dead run. A main step and its post step count as one run. */
export function countAttempts({ run }: Host, records: readonly JournalRecord[]): number {
  const runs = new Set(records.flatMap(entry => (entry.record === 'recovery' ? [entry.by] : [])))
  runs.delete(run.id)
  return runs.size
}

/**
 * Returns the number of attempts after which the hub accepted the report of the newest end; undefined if the hub has
 * not accepted that report.
 */
export function findAccepted(records: readonly JournalRecord[]): number | undefined {
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
export function interruptedState({ flows }: Pick<Host, 'flows'>, { facts, states }: DeploymentRecord): string {
  const flow = flows[flowOf(facts)]
  return states.findLast(({ state }) => statesAfter(flow, state)?.length !== 0)?.state ?? 'pending'
}
