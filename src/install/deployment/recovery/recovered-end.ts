import { isDeepStrictEqual } from 'node:util'
import type { DeployError } from '../../../core/errors.ts'
import { finishCommitted } from '../../host/cleanup.ts'
import { withPending } from '../../host/installed/host-record.ts'
import { type KnownRecord, tryToRestoreRecord } from '../../host/installed/restore-record.ts'
import { stagingPath } from '../../host/layout.ts'
import type { Host } from '../../reports/host.ts'
import { buildEnd, type DeploymentEnd } from '../../transaction/end.ts'
import { announcedIn } from '../../transaction/journal/announcement.ts'
import {
  type CommitRecord,
  findCommit,
  findHostRecord,
  pendingChanges,
} from '../../transaction/journal/journal-record.ts'
import { isPendingAfter } from '../../transaction/pending-services.ts'
import { isOfFile } from '../../transaction/restored-files.ts'
import { type RollbackRequest, type RolledBack, rollBack } from '../../transaction/rollback.ts'
import { undoChanges } from '../../transaction/undo.ts'
import { changedPlaces, type DeadRun, findEnd, interruptedState, wasUnfinished } from './dead-run.ts'
import { checksAfter, findServices } from './recovered-services.ts'

/** The second half of the sentence about an interrupted run. */
const ROLLED_BACK = {
  failed: 'before it had changed anything',
  rolled_back: 'and rolled back afterwards',
  inconsistent: 'and could not be rolled back',
} as const

const DAMAGED = 'and rolled back afterwards, but not all files are as before'

/** The end of a dead run, as its recovery found or made it. */
export interface RecoveredEnd {
  readonly end: DeploymentEnd
  /** Whether another recovery has to continue: this one was cancelled, or could not record the restored services. */
  readonly isUnfinished?: boolean
  /**
   * The error that leaves work to another recovery: the host's record, or the pending services in that record, could
   * not be written.
   */
  readonly unwritten?: DeployError | undefined
  /** Whether a kept path could not be put back. */
  readonly hasLost?: boolean | undefined
}

/** Ends a dead run on this host: rolls it back, or finishes its commit. Throws as `finishCommitted` does. */
export async function endRun(host: Host, run: DeadRun): Promise<RecoveredEnd> {
  const commit = findCommit(run.records)
  if (commit !== undefined) return await endCommitted(host, run, commit)
  // Everything that follows reads the host's record.
  const known = knownRecord(run)
  const unwritten = known && (await tryToRestoreRecord(host, known))
  const request = rollbackOf(host, run)
  const ended = await endRolledBack(request, run, interruptedState(host, run.record))
  return { ...ended, unwritten: unwritten ?? ended.unwritten, hasLost: request.lost.length > 0 }
}

/**
 * Returns the record of the host as the run knew it. If the rollback of the run left a problem, all services that the
 * run changed are pending in this record, because the run may have noted any of them.
 */
function knownRecord({ records, record: { facts } }: DeadRun): KnownRecord | undefined {
  const found = findHostRecord(records)
  if (found === undefined) return undefined
  const hasProblem = (findEnd(records)?.rollback?.problems.length ?? 0) > 0
  const services = records.flatMap(entry => (entry.record === 'service' ? [entry.part] : []))
  const unrestored = hasProblem ? services : []
  const installed = withPending(found.installed, row => isPendingAfter(row, { of: facts, unrestored }))
  return { record: { ...found, installed } }
}

/**
 * Ends a run that died before its commit, or that could not roll back. If the run recorded an end after which all files
 * are restored, that end stands, and only the services that the run left are restored. `state` is the state in which
 * the run was interrupted.
 */
async function endRolledBack(request: RollbackRequest, run: DeadRun, state: string): Promise<RecoveredEnd> {
  const { records } = run
  const known = findEnd(records)
  if (known !== undefined && known.rollback?.restored !== false)
    return wasUnfinished(records) ? await endRestored(request, run, known) : { end: known }
  const { outcome, rollback, ...left } = await rollBack(request)
  if (known !== undefined && rollback?.restored === false)
    return { end: isDeepStrictEqual(known.rollback, rollback) ? known : { ...known, rollback } }
  const fate = outcome === 'inconsistent' && rollback?.restored === true ? DAMAGED : ROLLED_BACK[outcome]
  const message = `The run was interrupted in state ${state} ${fate}.`
  // The message of an earlier recovery says that the run could not be rolled back.
  const cause = known?.error?.code === 'interrupted' ? null : known?.error
  const end = buildEnd(new Date(), {
    outcome,
    rollback,
    changed: rollback?.restored === false,
    error: cause ?? { code: 'interrupted', message, step: null },
  })
  return { end, isUnfinished: isLeft(left), unwritten: left.unwritten }
}

/**
 * Restores the services that a run, or an earlier recovery of it, left after all files were restored. Services may be
 * using the files by now, so the files are not compared again.
 */
async function endRestored(request: RollbackRequest, run: DeadRun, known: DeploymentEnd): Promise<RecoveredEnd> {
  const { rollback, ...left } = await rollBack({ ...request, places: [] })
  if (rollback === null || known.rollback === null) return { end: known }
  const places = changedPlaces(run.records)
  const damage = known.rollback.problems.filter(problem => isOfFile(problem, places))
  const { healthy, problems } = rollback
  // Both lists name the lost kept paths.
  const continued = { ...known.rollback, healthy, problems: [...new Set([...damage, ...problems])] }
  return { end: { ...known, rollback: continued }, isUnfinished: isLeft(left), unwritten: left.unwritten }
}

function isLeft({ isUnfinished, unchecked }: Pick<RolledBack, 'isUnfinished' | 'unchecked'>): boolean {
  return isUnfinished === true || unchecked !== undefined
}

function rollbackOf(host: Host, run: DeadRun): RollbackRequest & { readonly lost: readonly string[] } {
  const { layout, log, grace, recovery } = host
  const { begin, records, journal, record } = run
  const wasUndone = records.some(entry => entry.record === 'undone' && entry.was_made)
  const lost = records.flatMap(entry => (entry.record === 'undone' && entry.lost !== undefined ? [entry.lost] : []))
  const found = findServices(host, run)
  const changeLog = { root: layout.root, journal, log, onLost: (problem: string) => void lost.push(problem) }
  return {
    layout,
    log,
    grace,
    places: changedPlaces(records),
    keepPaths: begin.keep_paths,
    stagingFolder: stagingPath(layout, begin.facts.deployment_id),
    byContent: true,
    of: record.facts,
    ...found,
    healthchecks: async () => await checksAfter(host, run, found),
    undo: async () => (await undoChanges(changeLog, pendingChanges(records))) || wasUndone,
    lost,
    onFilesRestored: recovery?.onFilesRestored,
  }
}

/** Ends a run that died after its commit: the new version stays. */
async function endCommitted(host: Host, run: DeadRun, commit: CommitRecord): Promise<RecoveredEnd> {
  const { records } = run
  await finishCommitted(host, { removed: [], ...commit }, knownRecord(run))
  const changed = records.flatMap(announcedIn).some(({ type }) => type !== 'make_directory')
  return { end: findEnd(records) ?? buildEnd(new Date(), { outcome: 'success', changed }) }
}
