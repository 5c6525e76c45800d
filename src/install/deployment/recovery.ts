import { type DeployError, DeploymentError, toDeployError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { reportStatusOf } from '../../core/outcome.ts'
import { statesBetween } from '../../core/state-machine.ts'
import { toHostError } from '../files/system-errors.ts'
import {
  cleanStaging,
  discardStaging,
  finishCommitted,
  removeStrayTemporaries,
  retryDiscarded,
} from '../host/cleanup.ts'
import { type Layout, stagingPath } from '../host/layout.ts'
import { type ClosedDeployment, closeDeployment } from '../reports/close.ts'
import type { Host } from '../reports/host.ts'
import type { LocalReport } from '../reports/local-report.ts'
import { describeRecovered } from '../reports/recovered-run.ts'
import { restoredUnhealthy } from '../reports/restored-health.ts'
import { placesIn } from '../transaction/change.ts'
import { buildEnd, type DeploymentEnd, type RollbackFacts } from '../transaction/end.ts'
import { flowOf } from '../transaction/facts.ts'
import {
  type BeginRecord,
  type CommitRecord,
  findCommit,
  type Journal,
  type JournalRecord,
  openJournal,
  pendingChanges,
  readJournal,
  readUnprovenChanges,
  removeJournal,
} from '../transaction/journal.ts'
import { JournalDamage } from '../transaction/journal-line.ts'
import { type DeploymentRecord, recordFromJournal } from '../transaction/record.ts'
import { type RollbackRequest, type RolledBack, rollBack } from '../transaction/rollback.ts'
import { isAnyMade, undoChanges } from '../transaction/transaction.ts'

const MAX_RECOVERIES = 5

/** How a run that was cut off ended. */
const ROLLED_BACK = {
  failed: 'before it had changed anything',
  rolled_back: 'and rolled back afterwards',
  inconsistent: 'and could not be rolled back',
} as const

/** A deployment whose run is dead, according to its journal. */
interface DeadRun {
  readonly begin: BeginRecord
  readonly records: readonly JournalRecord[]
  /** Open, to continue it. */
  readonly journal: Journal
  readonly record: DeploymentRecord
}

/**
 * Ends what a dead run left: before its commit by a rollback, after it by finishing the cleanup. Reports the dead run's
 * outcome in its name. The caller holds the lock. Returns undefined when nothing was left.
 * Throws DeploymentError `inconsistent` when the host could not be restored, or after 5 failed attempts.
 */
export async function recover(host: Host): Promise<ClosedDeployment | undefined> {
  const { layout, log } = host
  await removeStrayTemporaries(layout, log)
  await retryDiscarded(layout, log)
  const records = readRecords(layout)
  const [begin] = records
  if (begin?.record !== 'begin') {
    await cleanStaging(layout, log)
    return undefined
  }
  log.group('Recovering an interrupted deployment')
  const journal = openJournal(layout.journal, host.redact)
  try {
    const record = recordFromJournal(begin.facts, records)
    const { drift: _, ...words } = record.facts
    host.know(words)
    return await recoverRun(host, { begin, records, journal, record })
  } finally {
    journal.close()
  }
}

/**
 * Whether this host may run neither version whole, according to the journal of a dead run and without changing
 * anything: a commit is exactly new, and changes that are not made, or undone, are exactly old.
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

/** How a dead run has ended. */
interface RecoveredEnd {
  readonly end: DeploymentEnd
  /** This recovery was cancelled, and another one has to go on. */
  readonly isUnfinished?: boolean
  /** Why another one has to go on too. */
  readonly unwritten?: DeployError | undefined
}

/** Nothing is left to recover of a deployment: removes its journal and what it staged. */
export async function endJournal(host: Host, deploymentId: string): Promise<void> {
  const { layout, log } = host
  discardStaging(layout, deploymentId)
  await removeJournal(layout.journal)
  await cleanStaging(layout, log)
}

/** Deletes what a deployment staged while its journal, which needs none of it any more, is still there. */
export async function emptyStaging({ layout, log }: Host, deploymentId: string): Promise<void> {
  discardStaging(layout, deploymentId)
  await cleanStaging(layout, log)
}

async function recoverRun(host: Host, run: DeadRun): Promise<ClosedDeployment> {
  const { begin, records, journal, record } = run
  const commit = findCommit(records)
  const attempts = countAttempts(host, records)
  const known = findEnd(records)
  // What is left of a commit, or of a rollback that is complete, is only its cleanup, and never given up.
  if (commit === undefined && (known === undefined || known.rollback?.restored === false)) {
    if (attempts >= MAX_RECOVERIES) throw givenUp(host.layout, begin)
    await journal.append({ record: 'recovery', at: new Date().toISOString(), by: host.runId })
  }
  const { end, isUnfinished, unwritten } =
    commit === undefined ? await endRolledBack(host, run) : await endCommitted(host, run, commit)
  const wasReported = attempts > 0 && end === known
  if (wasReported && end.rollback?.restored === false) throw stillInconsistent(begin, end.rollback)
  if (end !== known) await journal.append({ record: 'end', end, ...(isUnfinished ? { unfinished: true } : {}) })
  await enterTerminal(host, record, end)
  const closed = await closeDeployment(host, {
    record,
    end,
    address: begin.report_address,
    accepted: known && isReportedAlike(end, known) ? findAccepted(records) : undefined,
    onAccepted: async attempts => void (await journal.append({ record: 'reported', attempts })),
  })
  if (closed.unwritten !== undefined) host.log.warning(closed.unwritten)
  if (end.rollback?.restored === false) throw stillInconsistent(begin, end.rollback)
  if (isUnfinished) host.grace.cancelled.throwIfAborted()
  if (unwritten !== undefined) throw unwritten
  await endJournal(host, begin.facts.deployment_id)
  logRecovered(host, closed.report, known)
  return closed
}

/** A rollback that continues changes nothing for the hub, which has the outcome. */
function isReportedAlike(end: DeploymentEnd, known: DeploymentEnd): boolean {
  return reportStatusOf(end.outcome) === reportStatusOf(known.outcome)
}

/** One sentence. Of a run that has reported its end itself, only what is wrong. */
function logRecovered({ log, onRecovered }: Host, report: LocalReport, known: DeploymentEnd | undefined): void {
  const unhealthy = restoredUnhealthy(report)
  if (unhealthy !== undefined) log.error(unhealthy)
  else if (known !== undefined) log.info(`The deployment ${report.deployment_id} of ${report.slug} is cleaned up now.`)
  else log.notice(describeRecovered(report))
  if (known === undefined) onRecovered?.(unhealthy ?? describeRecovered(report))
}

/** The run died before its commit, or could not roll back. What it noted itself after its rollback is the truth. */
async function endRolledBack(host: Host, run: DeadRun): Promise<RecoveredEnd> {
  const { records, record } = run
  const known = findEnd(records)
  if (known !== undefined && known.rollback?.restored !== false)
    return wasUnfinished(records) ? await endRestored(host, run, known) : { end: known }
  const { outcome, rollback, ...left } = await rollBack(rollbackOf(host, run))
  if (known?.outcome === outcome) return { end: known }
  const message = `The run was cut off in state ${lastState(record)} ${ROLLED_BACK[outcome]}.`
  const end = buildEnd(new Date(), {
    outcome,
    rollback,
    changed: rollback?.restored === false,
    error: known?.error ?? { code: 'interrupted', message, step: null },
  })
  return { end, isUnfinished: isLeft(left), unwritten: left.unwritten }
}

/**
 * The files were restored by a run, or a recovery, that was cancelled and had no time for all services. They may run on
 * the files by now, so these are not compared any more.
 */
async function endRestored(host: Host, run: DeadRun, known: DeploymentEnd): Promise<RecoveredEnd> {
  const { rollback, ...left } = await rollBack({ ...rollbackOf(host, run), places: [] })
  if (rollback === null || known.rollback === null) return { end: known }
  const ofFiles = known.rollback.problems.filter(isOfFile)
  const damage = known.rollback.verified === false ? known.rollback.problems : ofFiles
  const { healthy, problems } = rollback
  const continued = { ...known.rollback, healthy, problems: [...damage, ...problems] }
  return { end: { ...known, rollback: continued }, isUnfinished: isLeft(left), unwritten: left.unwritten }
}

/** Whether a problem of a rollback is a file, which stays one. */
function isOfFile(problem: string): boolean {
  return /^(?:plugins|extensions)\//.test(problem)
}

function isLeft({ isUnfinished, unchecked }: Pick<RolledBack, 'isUnfinished' | 'unchecked'>): boolean {
  return isUnfinished === true || unchecked !== undefined
}

function rollbackOf(
  { layout, log, grace, onFilesRestored }: Host,
  { begin, records, journal }: DeadRun,
): RollbackRequest {
  const wasUndone = records.some(entry => entry.record === 'undone' && entry.was_made)
  return {
    layout,
    log,
    grace,
    places: placesIn(records.flatMap(entry => (entry.record === 'change' ? [entry.change] : []))),
    keepPaths: begin.keep_paths,
    stagingFolder: stagingPath(layout, begin.facts.deployment_id),
    byContent: true,
    services: records.flatMap(entry => (entry.record === 'service' ? [entry.change] : [])),
    healthchecks: records.flatMap(entry => (entry.record === 'healthchecks' ? entry.checks : [])),
    undo: async () => (await undoChanges({ root: layout.root, journal, log }, pendingChanges(records))) || wasUndone,
    onFilesRestored,
  }
}

/** A cancelled run, or a cancelled recovery of it, had no time for its services. */
function wasUnfinished(records: readonly JournalRecord[]): boolean {
  return records.findLast(entry => entry.record === 'end')?.unfinished === true
}

/** The run died after its commit: the new version stays. */
async function endCommitted({ layout, log }: Host, { records }: DeadRun, commit: CommitRecord): Promise<RecoveredEnd> {
  await finishCommitted(layout, log, { removed: [], ...commit })
  const changed = records.some(entry => entry.record === 'change' && entry.change.type !== 'make_directory')
  return { end: findEnd(records) ?? buildEnd(new Date(), { outcome: 'success', changed }) }
}

/** How many other runs have begun to recover this one; a main step and its post step are one run. */
function countAttempts({ runId }: Host, records: readonly JournalRecord[]): number {
  const runs = new Set(records.flatMap(entry => (entry.record === 'recovery' ? [entry.by] : [])))
  runs.delete(runId)
  return runs.size
}

/** The number of attempts after which the hub accepted the report of the newest end, if it did. */
function findAccepted(records: readonly JournalRecord[]): number | undefined {
  const last = records.findLast(entry => entry.record === 'reported' || entry.record === 'end')
  return last?.record === 'reported' ? last.attempts : undefined
}

function findEnd(records: readonly JournalRecord[]): DeploymentEnd | undefined {
  return records.findLast(entry => entry.record === 'end')?.end
}

/**
 * Ends the dead run's flow by the table of its flow. Enters too what the journal had no room for, and ends a flow
 * anew that had failed because it could not roll back.
 */
async function enterTerminal({ flows }: Host, record: DeploymentRecord, end: DeploymentEnd): Promise<void> {
  const flow = flows[flowOf(record.facts)]
  const running = record.states.findLast(({ state }) => flow[state]?.length !== 0)?.state ?? 'pending'
  const terminal = terminalState(end)
  if ((running === 'pending' && terminal === 'failed') || lastState(record) === terminal) return
  for (const state of statesBetween(flow, running, terminal)) await record.enter({ state, at: end.completed_at })
}

function terminalState({ outcome }: DeploymentEnd): string {
  if (outcome === 'success') return 'succeeded'
  return outcome === 'rolled_back' ? 'rolled_back' : 'failed'
}

function lastState(record: DeploymentRecord): string {
  return record.states.at(-1)?.state ?? 'pending'
}

/**
 * The records of a dead run, none where it has left no journal. Throws DeploymentError `inconsistent` for a journal that
 * is not what this action writes.
 */
export function readRecords({ root, journal: path }: Layout): readonly JournalRecord[] {
  try {
    const records = readJournal(path) ?? []
    if (isAnyMade(root, readUnprovenChanges(path)))
      throw new JournalDamage('a change was made that is announced behind a torn record')
    return records
  } catch (error) {
    const found = error instanceof JournalDamage ? error.message : toHostError(error, `reading ${path}`).message
    throw new DeploymentError(
      'inconsistent',
      `The journal ${path} of an interrupted deployment is damaged (${cleanForeignText(found)}), so nothing was changed. Restore plugins/, extensions/ and kept paths by hand from .hub-deploy/snapshots and .hub-deploy/staging, move that file away, and run again (docs/operating.md, "The journal is damaged").`,
      { cause: toDeployError(error) },
    )
  }
}

function givenUp({ journal, reports }: Layout, begin: BeginRecord): DeploymentError {
  return new DeploymentError(
    'inconsistent',
    `The deployment ${begin.facts.deployment_id} of ${begin.facts.slug} could not be rolled back in ${MAX_RECOVERIES} attempts, so there will be no other: read its report in ${reports} and ${journal}, repair the host by hand, then remove that file.`,
  )
}

function stillInconsistent(begin: BeginRecord, rollback: RollbackFacts): DeploymentError {
  return new DeploymentError(
    'inconsistent',
    `The interrupted deployment ${begin.facts.deployment_id} of ${begin.facts.slug} could not be rolled back, so nothing new is deployed: ${rollback.problems.join(' ')}`,
  )
}
