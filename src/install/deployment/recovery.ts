import { DeploymentError, toDeployError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
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
import { placesIn } from '../transaction/change.ts'
import { buildEnd, type DeploymentEnd, type RollbackFacts } from '../transaction/end.ts'
import {
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
import { rollBack } from '../transaction/rollback.ts'
import { isAnyMade, undoChanges } from '../transaction/transaction.ts'

const MAX_RECOVERIES = 5

/** How a run that was cut off ended. */
const ROLLED_BACK = {
  failed: 'before it had changed anything',
  rolled_back: 'and rolled back afterwards',
  inconsistent: 'and could not be rolled back',
} as const

type Begin = Extract<JournalRecord, { record: 'begin' }>
type Commit = Extract<JournalRecord, { record: 'commit' }>

/** A deployment whose run is dead, according to its journal. */
interface DeadRun {
  readonly begin: Begin
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
  // A commit is never given up: what is left of it is only its cleanup.
  if (commit === undefined) {
    if (attempts >= MAX_RECOVERIES) throw givenUp(host.layout, begin)
    await journal.append({ record: 'recovery', at: new Date().toISOString(), by: host.runId })
  }
  host.log.info(
    `The deployment ${begin.facts.deployment_id} of ${begin.facts.slug} was cut off in state ${lastState(record)}.`,
  )
  const known = findEnd(records)
  const end = commit === undefined ? await endRolledBack(host, run) : await endCommitted(host, run, commit)
  const wasReported = attempts > 0 && end === known
  if (wasReported && end.rollback?.restored === false) throw stillInconsistent(begin, end.rollback)
  if (end !== known) await journal.append({ record: 'end', end })
  await enterTerminal(host, record, end)
  const closed = await closeDeployment(host, {
    record,
    end,
    address: begin.report_address,
    accepted: end === known ? findAccepted(records) : undefined,
    onAccepted: async attempts => void (await journal.append({ record: 'reported', attempts })),
  })
  if (closed.unwritten !== undefined) host.log.warning(closed.unwritten)
  if (end.rollback?.restored === false) throw stillInconsistent(begin, end.rollback)
  await endJournal(host, begin.facts.deployment_id)
  host.log.notice(`An interrupted deployment of ${begin.facts.slug} was recovered: ${end.outcome}.`)
  return closed
}

/** The run died before its commit, or could not roll back. What it noted itself after its rollback is the truth. */
async function endRolledBack({ layout, log, onFilesRestored }: Host, run: DeadRun): Promise<DeploymentEnd> {
  const { begin, records, journal, record } = run
  const known = findEnd(records)
  if (known !== undefined && known.rollback?.restored !== false) return known
  const wasUndone = records.some(entry => entry.record === 'undone' && entry.was_made)
  const rolledBack = await rollBack({
    layout,
    log,
    places: placesIn(records.flatMap(entry => (entry.record === 'change' ? [entry.change] : []))),
    keepPaths: begin.keep_paths,
    stagingFolder: stagingPath(layout, begin.facts.deployment_id),
    byContent: true,
    services: records.flatMap(entry => (entry.record === 'service' ? [entry.change] : [])),
    healthchecks: records.flatMap(entry => (entry.record === 'healthchecks' ? entry.checks : [])),
    undo: async () => (await undoChanges({ root: layout.root, journal, log }, pendingChanges(records))) || wasUndone,
    onFilesRestored,
  })
  if (known?.outcome === rolledBack.outcome) return known
  const ended = ROLLED_BACK[rolledBack.outcome]
  const message = `The run was cut off in state ${lastState(record)} ${ended}.`
  return buildEnd(new Date(), {
    ...rolledBack,
    changed: rolledBack.rollback?.restored === false,
    error: known?.error ?? { code: 'interrupted', message, step: null },
  })
}

/** The run died after its commit: the new version stays. */
async function endCommitted({ layout, log }: Host, { records }: DeadRun, commit: Commit): Promise<DeploymentEnd> {
  await finishCommitted(layout, log, { removed: [], ...commit })
  const changed = records.some(entry => entry.record === 'change' && entry.change.type !== 'make_directory')
  return findEnd(records) ?? buildEnd(new Date(), { outcome: 'success', changed })
}

/** A run rolls back itself when its commit record could not be made durable; the journal then shows the undo. */
function findCommit(records: readonly JournalRecord[]): Commit | undefined {
  const wasUndone = records.some(entry => entry.record === 'undone')
  return wasUndone ? undefined : records.find(entry => entry.record === 'commit')
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
 * Ends the dead run's flow by the table of its contract. Enters too what the journal had no room for, and ends a flow
 * anew that had failed because it could not roll back.
 */
async function enterTerminal({ flows }: Host, record: DeploymentRecord, end: DeploymentEnd): Promise<void> {
  const flow = flows[record.facts.contract]
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

function readRecords({ root, journal: path }: Layout): readonly JournalRecord[] {
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

function givenUp({ journal, reports }: Layout, begin: Begin): DeploymentError {
  return new DeploymentError(
    'inconsistent',
    `The deployment ${begin.facts.deployment_id} of ${begin.facts.slug} could not be rolled back in ${MAX_RECOVERIES} attempts, so there will be no other: read its report in ${reports} and ${journal}, repair the host by hand, then remove that file.`,
  )
}

function stillInconsistent(begin: Begin, rollback: RollbackFacts): DeploymentError {
  return new DeploymentError(
    'inconsistent',
    `The interrupted deployment ${begin.facts.deployment_id} of ${begin.facts.slug} could not be rolled back, so nothing new is deployed: ${rollback.problems.join(' ')}`,
  )
}
