import { isDeepStrictEqual } from 'node:util'
import type { DeployError } from '../../core/errors.ts'
import { statesBetween } from '../../core/state-machine.ts'
import { nameOf, stagingPath } from '../host/layout.ts'
import { requireOwnDirectory, requireSafeDirectory } from '../host/ownership.ts'
import { buildEnd, type DeploymentEnd, flowOf, nameRun } from '../journal/facts.ts'
import { openJournal, removeJournal } from '../journal/journal.ts'
import { announcedIn, type CommitRecord, findCommit, pendingChanges } from '../journal/records.ts'
import { closeDeployment } from '../reports/close.ts'
import type { HostContext } from '../reports/host.ts'
import {
  describeRecovered,
  isReportedAlike,
  type LocalReport,
  restoredUnhealthy,
  rollbackProblems,
} from '../reports/local-report.ts'
import type { RunResult } from '../reports/result.ts'
import { type DeploymentRecord, recordFromJournal } from '../transaction/record.ts'
import { type FailedRun, isOfFile, type RolledBack, type RunEnd, rollBack } from '../transaction/rollback.ts'
import { undoChanges } from '../transaction/undo.ts'
import {
  cleanStaging,
  discardStaging,
  finishCommitted,
  orWarn,
  removeStrayTemporaries,
  removeTrash,
  retryDiscarded,
} from './cleanup.ts'
import {
  changedDirectories,
  changedPlaces,
  countAttempts,
  type DeadRun,
  findAcceptedAttempts,
  findEnd,
  interruptedState,
  needsRollback,
  readRecords,
  stillInconsistent,
  verifyRecoverable,
  wasUnfinished,
} from './dead-run.ts'
import { checksAfter, findPending, findServices, restorePending } from './services.ts'

/**
 * Ends the run that died on this host. Rolls it back if it died before its commit; otherwise finishes its cleanup. A
 * run that announced nothing has changed nothing. Reports the outcome on behalf of that run. The caller must hold the
 * lock. Returns how the run ended; undefined if no run has left anything. Throws DeploymentError `inconsistent` if the
 * journal is damaged, if the host could not be restored, or after 5 failed attempts. Throws UntouchableHostError if
 * another user could write to a directory in which the run worked. Also throws file system errors, as they are or as a
 * DeployError, and the signal's reason if a cancel leaves services to restore.
 */
export async function recoverDeadRun(host: HostContext): Promise<RunResult | undefined> {
  const { layout, log } = host
  await removeStrayTemporaries(layout, log)
  const wasPending = new Set(findPending(layout).map(nameOf))
  const run = openDeadRun(host)
  let recovered: RunResult | undefined
  try {
    if (run === undefined) {
      await retryDiscarded(layout, log)
      await cleanStaging(layout, log)
    } else {
      await beginRecovery(host, run)
      const commit = findCommit(run.records)
      const ended = commit === undefined ? await endRolledBack(host, run) : await endCommitted(host, run, commit)
      recovered = await closeRecovered(host, run, ended)
    }
  } finally {
    run?.journal.close()
  }
  const pending = findPending(layout).filter(row => wasPending.has(nameOf(row)))
  await restorePending(host, pending)
  return recovered
}

/**
 * Opens the run whose journal is at the layout's `journal`. Returns undefined if there is no journal or an empty one.
 */
function openDeadRun(host: HostContext): DeadRun | undefined {
  const { layout, log } = host
  const records = readRecords(layout)
  const [begin] = records
  if (begin?.record !== 'begin') return undefined
  requireOwnDirectory(stagingPath(layout, begin.facts.deployment_id))
  // The run may have been the first to install anything in one of these directories.
  for (const directory of changedDirectories(layout, records)) requireSafeDirectory(host, directory)
  log.group('Recovering an interrupted deployment', 'at once')
  const record = recordFromJournal(begin.facts, records)
  const { drift: _, ...words } = record.facts
  host.secrets.know(words)
  return { begin, records, record, journal: openJournal(layout.journal, host.secrets.redact) }
}

/** Refuses a run that cannot be recovered. If the run has to be rolled back, records this attempt. */
async function beginRecovery(host: HostContext, { records, journal }: DeadRun): Promise<void> {
  verifyRecoverable(host, records)
  if (needsRollback(records))
    await journal.append({ record: 'recovery', at: new Date().toISOString(), by: host.run.id })
}

/** Records and reports how a dead run ended. Removes what it left, unless a later recovery needs it. */
async function closeRecovered(host: HostContext, run: DeadRun, ended: RunEnd): Promise<RunResult> {
  const { begin, records, journal, record } = run
  const { end, isUnfinished, unwritten } = ended
  const known = findEnd(records)
  const wasReported = countAttempts(host, records) > 0 && end === known
  if (wasReported && end.rollback?.restored === false) throw stillInconsistent(begin, end.rollback)
  const unfinished = isUnfinished ? { unfinished: true as const } : {}
  const isNoted = end === known || (await journal.append({ record: 'end', end, ...unfinished })) !== undefined
  await enterTerminal(host, record, end)
  const isSettled = end.rollback?.restored !== false && !isUnfinished
  // The disk may be full. Nothing needs the staged files anymore, and the reports need space.
  if (isNoted && isSettled && !ended.hasLost)
    await orWarn(host.log, () => emptyStaging(host, begin.facts.deployment_id))
  const closed = await closeDeployment(host, {
    record,
    end,
    address: begin.report_address,
    isLocked: true,
    accepted: known && isReportedAlike(end, known) ? findAcceptedAttempts(records) : undefined,
    onAccepted: async attempts => void (await journal.append({ record: 'reported', attempts })),
  })
  if (closed.unwritten !== undefined) host.log.warning(closed.unwritten)
  if (end.rollback?.restored === false) throw stillInconsistent(begin, end.rollback)
  if (isUnfinished) host.grace.cancelled.throwIfAborted()
  if (unwritten !== undefined) throw unwritten
  await retryDiscarded(host.layout, host.log)
  // If there is no local report, another run writes it, provided that the journal says how this run ended.
  if (closed.reportPath !== undefined || !isNoted) await endJournal(host, begin.facts.deployment_id, ended)
  logRecovered(host, closed.report, known)
  return closed
}

/**
 * Logs how the recovery ended, with each problem that remains. If the run had recorded its end, and that end stands,
 * logs only the cleanup, or that the restored version is not healthy.
 */
function logRecovered({ log, recovery }: HostContext, report: LocalReport, known: DeploymentEnd | undefined): void {
  const isNews = known === undefined || known.rollback?.restored === false
  const unhealthy = restoredUnhealthy(report)
  if (unhealthy !== undefined) log.error(unhealthy)
  else if (isNews && report.outcome === 'inconsistent')
    log.warning([describeRecovered(report), ...rollbackProblems(report)].join(' '))
  else if (isNews) log.notice(describeRecovered(report))
  else log.info(`The interrupted ${nameRun(report)} (${report.deployment_id}) has been cleaned up.`)
  const isSaid = unhealthy !== undefined || (isNews && report.outcome === 'inconsistent')
  if (!isSaid) for (const problem of rollbackProblems(report)) log.warning(problem)
  if (isNews) recovery?.onRecovered?.(unhealthy ?? describeRecovered(report))
}

/**
 * Ends the dead run's flow according to the flow's own state table. Also enters the states for which the journal had no
 * space. If the flow had failed because it could not roll back, ends the flow again.
 */
async function enterTerminal({ flows }: HostContext, record: DeploymentRecord, end: DeploymentEnd): Promise<void> {
  const flow = flows[flowOf(record.facts)]
  const running = interruptedState({ flows }, record)
  const terminal = terminalState(end)
  if ((running === 'pending' && terminal === 'failed') || record.states.at(-1)?.state === terminal) return
  for (const state of statesBetween(flow, running, terminal)) await record.enter({ state, at: end.completed_at })
}

function terminalState({ outcome }: DeploymentEnd): string {
  if (outcome === 'success') return 'succeeded'
  return outcome === 'rolled_back' ? 'rolled_back' : 'failed'
}

/** The second half of the sentence about an interrupted run. */
const ROLLED_BACK = {
  failed: 'before it had changed anything',
  rolled_back: 'and rolled back afterwards',
  inconsistent: 'and could not be rolled back',
} as const

const DAMAGED = 'and rolled back afterwards, but not all files are as before'

/**
 * Ends a run that died before its commit, or that could not roll back. If the run recorded an end after which all files
 * are restored, that end stands, and only the services that the run left are restored.
 */
async function endRolledBack(host: HostContext, run: DeadRun): Promise<RunEnd> {
  const known = findEnd(run.records)
  const restored = known?.rollback?.restored === false ? undefined : known
  const request = failedRunOf(host, run)
  const isComplete = restored !== undefined && !wasUnfinished(run.records)
  if (isComplete) return { end: restored, hasLost: request.lost.length > 0 }
  // Services may be using the restored files by now, so these files are not compared again.
  const rolledBack = await rollBack(restored === undefined ? request : { ...request, places: [] })
  const end = restored === undefined ? buildRecovered(host, run, rolledBack) : continueEnd(run, restored, rolledBack)
  const { unwritten, unchecked } = rolledBack
  const isUnfinished = rolledBack.isUnfinished === true || unchecked !== undefined
  return { end, isUnfinished, unwritten, hasLost: request.lost.length > 0 }
}

/** Builds the end of a run that a recovery has rolled back. An earlier end with the same rollback stands. */
function buildRecovered(host: HostContext, { records, record }: DeadRun, rolledBack: RolledBack): DeploymentEnd {
  const { outcome, rollback } = rolledBack
  const known = findEnd(records)
  if (known !== undefined && rollback?.restored === false)
    return isDeepStrictEqual(known.rollback, rollback) ? known : { ...known, rollback }
  const fate = outcome === 'inconsistent' && rollback?.restored === true ? DAMAGED : ROLLED_BACK[outcome]
  const message = `The run was interrupted in state ${interruptedState(host, record)} ${fate}.`
  // The message of an earlier recovery says that the run could not be rolled back.
  const cause = known?.error?.code === 'interrupted' ? null : known?.error
  return buildEnd(new Date(), {
    outcome,
    rollback,
    changed: rollback?.restored === false,
    error: cause ?? { code: 'interrupted', message, step: null },
  })
}

/** Adds the services that this recovery has restored to the end after which all files were restored. */
function continueEnd({ records }: DeadRun, known: DeploymentEnd, { rollback }: RolledBack): DeploymentEnd {
  if (rollback === null || known.rollback === null) return known
  const places = changedPlaces(records)
  const damage = known.rollback.problems.filter(problem => isOfFile(problem, places))
  const { healthy, problems } = rollback
  // Both lists name the lost kept paths.
  return { ...known, rollback: { ...known.rollback, healthy, problems: [...new Set([...damage, ...problems])] } }
}

function failedRunOf(host: HostContext, run: DeadRun): FailedRun & { readonly lost: readonly string[] } {
  const { layout, log, grace, recovery } = host
  const { begin, records, journal, record } = run
  const wasUndone = records.some(entry => entry.record === 'undone' && entry.was_made)
  const lost = records.flatMap(entry => (entry.record === 'undone' && entry.lost !== undefined ? [entry.lost] : []))
  const found = findServices(host, run)
  const unsynced: DeployError[] = []
  const changeLog = {
    ...{ root: layout.root, journal, log },
    onLost: (problem: string) => void lost.push(problem),
    onUnsynced: (error: DeployError) => void unsynced.push(error),
  }
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
    // A bound function adds no frame to the stack of the undo.
    undo: undoChanges.bind(undefined, changeLog, pendingChanges(records)),
    wasUndone,
    lost,
    unsynced,
    onFilesRestored: recovery?.onFilesRestored,
  }
}

/** Ends a run that died after its commit: the new version stays. */
async function endCommitted(host: HostContext, { records }: DeadRun, commit: CommitRecord): Promise<RunEnd> {
  await finishCommitted(host, commit)
  const changed = records.flatMap(announcedIn).some(({ type }) => type !== 'make_directory')
  return { end: findEnd(records) ?? buildEnd(new Date(), { outcome: 'success', changed }) }
}

/**
 * Removes the journal of a deployment and moves the staged files to the trash. If the staged files may contain a lost
 * kept path, sets the staged files aside instead.
 */
export async function endJournal(
  { layout, log }: HostContext,
  id: string,
  { hasLost = false }: Pick<RunEnd, 'hasLost'>,
): Promise<void> {
  if (!hasLost) await discardStaging(layout, id)
  await removeJournal(layout.journal)
  await cleanStaging(layout, log)
}

/** The time for which other runs wait, at most, while space is freed for the report. */
const MAKE_ROOM_MS = 2000

/**
 * Removes the files that a deployment staged, or as many of them as 2 s are enough for. Its journal, which no longer
 * needs these files, stays.
 */
export async function emptyStaging(host: HostContext, deploymentId: string): Promise<void> {
  const { layout, log, grace } = host
  await discardStaging(layout, deploymentId)
  await cleanStaging(layout, log)
  await removeTrash(host, AbortSignal.any([grace.cancelled, AbortSignal.timeout(MAKE_ROOM_MS)]))
}
