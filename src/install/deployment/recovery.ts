import { DeploymentError, toDeployError } from '../../core/errors.ts'
import type { Outcome } from '../../core/outcome.ts'
import { cleanStaging, finishCommitted, removeStrayTemporaries } from '../host/cleanup.ts'
import { removeDeadMarks } from '../host/lock.ts'
import { type ClosedDeployment, type ClosingHost, closeDeployment } from '../reports/close.ts'
import { placesIn } from '../transaction/change.ts'
import type { DeploymentEnd, RollbackFacts } from '../transaction/end.ts'
import {
  type Journal,
  type JournalRecord,
  openJournal,
  pendingChanges,
  readJournal,
  removeJournal,
} from '../transaction/journal.ts'
import { type DeploymentRecord, recordFromJournal } from '../transaction/record.ts'
import { firstChangeOf, takeBack } from '../transaction/rollback.ts'
import { undoChanges } from '../transaction/transaction.ts'

const MAX_RECOVERIES = 5

type Begin = Extract<JournalRecord, { record: 'begin' }>
type Commit = Extract<JournalRecord, { record: 'commit' }>

/**
 * Ends what a dead run left: before its commit by taking everything back, after it by finishing the cleanup. Reports the
 * dead run's outcome in its own name. The caller holds the lock. Returns undefined when nothing was left.
 * Throws DeploymentError `inconsistent` when the host could not be brought back, or after 5 failed tries.
 */
export async function recover(host: ClosingHost): Promise<ClosedDeployment | undefined> {
  const { layout, log } = host
  await removeStrayTemporaries(layout, log)
  removeDeadMarks(layout.lock)
  const records = readRecords(layout.journal)
  const begin = records.find(record => record.record === 'begin')
  if (begin === undefined) {
    await removeJournal(layout.journal)
    await cleanStaging(layout, log)
    return undefined
  }
  log.group('Recovering an interrupted deployment')
  const journal = await openJournal(layout.journal)
  try {
    return await recoverDeployment(host, begin, records, journal)
  } finally {
    journal.close()
  }
}

async function recoverDeployment(
  host: ClosingHost,
  begin: Begin,
  records: readonly JournalRecord[],
  journal: Journal,
): Promise<ClosedDeployment> {
  const tried = records.filter(record => record.record === 'recovery').length
  if (tried >= MAX_RECOVERIES) throw givenUp(host.layout.journal, begin)
  await journal.append({ record: 'recovery', at: new Date().toISOString() })
  const record = recordFromJournal(begin.facts, records)
  host.log.info(
    `The deployment ${begin.facts.deployment_id} of ${begin.facts.slug} was cut off in state ${lastState(record)}.`,
  )
  const commit = findCommit(records)
  const end =
    commit === undefined
      ? await endBack(host, begin, record, records, journal)
      : await endCommitted(host, commit, records)
  const wasToldBefore = tried > 0 && end === findEnd(records)
  if (wasToldBefore && end.rollback?.restored === false) throw stillInconsistent(begin, end.rollback)
  if (end !== findEnd(records)) await journal.append({ record: 'end', end })
  await enterTerminal(record, end)
  const closed = await closeDeployment(host, record, end, begin.report_address)
  if (closed.unwritten !== undefined) host.log.warning(closed.unwritten)
  if (end.rollback?.restored === false) throw stillInconsistent(begin, end.rollback)
  await removeJournal(host.layout.journal)
  await cleanStaging(host.layout, host.log)
  host.log.notice(`An interrupted deployment of ${begin.facts.slug} was recovered: ${end.outcome}.`)
  return closed
}

/** The run died before its commit, or could not take itself back. */
async function endBack(
  host: ClosingHost,
  begin: Begin,
  record: DeploymentRecord,
  records: readonly JournalRecord[],
  journal: Journal,
): Promise<DeploymentEnd> {
  const { layout, log } = host
  const told = findEnd(records)
  const wasUndone =
    told?.outcome === 'rolled_back' || records.some(entry => entry.record === 'undone' && entry.was_made)
  const taken = await takeBack({
    layout,
    log,
    places: placesIn(records.flatMap(entry => (entry.record === 'change' ? [entry.change] : []))),
    keepPaths: begin.keep_paths,
    since: firstChangeOf(record),
    services: records.flatMap(entry => (entry.record === 'service' ? [entry.change] : [])),
    healthchecks: records.flatMap(entry => (entry.record === 'healthchecks' ? entry.checks : [])),
    undo: async () => (await undoChanges(layout.root, pendingChanges(records), journal, log)) || wasUndone,
  })
  if (told?.outcome === taken.outcome) return told
  const ended = taken.outcome === 'failed' ? 'before it had changed anything' : 'and taken back afterwards'
  const message = `The run was cut off in state ${lastState(record)} ${ended}.`
  return {
    ...taken,
    changed: taken.rollback?.restored === false,
    completed_at: new Date().toISOString(),
    error: told?.error ?? { code: 'interrupted', message, step: null },
  }
}

/** The run died after its commit: the new version stays. */
async function endCommitted(
  host: ClosingHost,
  commit: Commit,
  records: readonly JournalRecord[],
): Promise<DeploymentEnd> {
  await finishCommitted(host.layout, host.log, { removed: [], ...commit })
  const changed = records.some(entry => entry.record === 'change' && entry.change.type !== 'make_directory')
  const told = findEnd(records)
  return told ?? { outcome: 'success', changed, error: null, rollback: null, completed_at: new Date().toISOString() }
}

/** A commit whose record could not be made durable was taken back by the run itself, which the journal then shows. */
function findCommit(records: readonly JournalRecord[]): Commit | undefined {
  const wasTakenBack = records.some(entry => entry.record === 'undone')
  return wasTakenBack ? undefined : records.find(entry => entry.record === 'commit')
}

function findEnd(records: readonly JournalRecord[]): DeploymentEnd | undefined {
  return records.findLast(entry => entry.record === 'end')?.end
}

async function enterTerminal(record: DeploymentRecord, end: DeploymentEnd): Promise<void> {
  const state = terminalState(end.outcome, record)
  if (state !== lastState(record)) await record.enter({ state, at: end.completed_at })
}

function terminalState(outcome: Outcome, record: DeploymentRecord): string {
  if (outcome === 'success') return 'succeeded'
  if (outcome === 'rolled_back') return 'rolled_back'
  return lastState(record) === 'pending' ? 'pending' : 'failed'
}

function lastState(record: DeploymentRecord): string {
  return record.states.at(-1)?.state ?? 'pending'
}

function readRecords(path: string): readonly JournalRecord[] {
  try {
    return readJournal(path) ?? []
  } catch (error) {
    throw new DeploymentError(
      'inconsistent',
      `The journal ${path} of an interrupted deployment is damaged, so it cannot be taken back by itself: compare plugins/ and extensions/ with ${path} and the snapshots, then remove it.`,
      { cause: toDeployError(error) },
    )
  }
}

function givenUp(path: string, begin: Begin): DeploymentError {
  return new DeploymentError(
    'inconsistent',
    `The deployment ${begin.facts.deployment_id} of ${begin.facts.slug} could not be taken back ${MAX_RECOVERIES} times, so nothing more is tried: see its report and ${path}, repair by hand, then remove that file.`,
  )
}

function stillInconsistent(begin: Begin, rollback: RollbackFacts): DeploymentError {
  return new DeploymentError(
    'inconsistent',
    `The interrupted deployment ${begin.facts.deployment_id} of ${begin.facts.slug} could not be taken back, so nothing new is deployed: ${rollback.problems.join(' ')}`,
  )
}
