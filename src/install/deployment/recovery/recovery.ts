import { statesBetween } from '../../../core/state-machine.ts'
import { cleanStaging, removeStrayTemporaries, retryDiscarded } from '../../host/cleanup.ts'
import { nameOf } from '../../host/installed/row-place.ts'
import { requireSafeDirectory } from '../../host/ownership/ownership.ts'
import { requireNothingStranded } from '../../host/switchable.ts'
import { type ClosedDeployment, closeDeployment } from '../../reports/close.ts'
import type { Host } from '../../reports/host.ts'
import { isReportedAlike, type LocalReport } from '../../reports/local-report.ts'
import { describeRecovered } from '../../reports/recovered-run.ts'
import { restoredUnhealthy } from '../../reports/restored-health.ts'
import { rollbackProblems } from '../../reports/rollback-problems.ts'
import type { DeploymentEnd } from '../../transaction/end.ts'
import { flowOf } from '../../transaction/facts.ts'
import { openJournal } from '../../transaction/journal/journal.ts'
import { type DeploymentRecord, recordFromJournal } from '../../transaction/record.ts'
import { nameRun } from '../../transaction/run-name.ts'
import {
  changedPlaces,
  countAttempts,
  type DeadRun,
  findAccepted,
  findEnd,
  interruptedState,
  needsRollback,
  readRecords,
  stillInconsistent,
  verifyRecoverable,
} from './dead-run.ts'
import { type EndedRun, endJournal } from './leftovers.ts'
import { endRun } from './recovered-end.ts'
import { findPending, restorePending } from './recovered-services.ts'

/**
 * Ends the run that died on this host. Rolls it back if it died before its commit; otherwise finishes its cleanup. A
 * run that announced nothing has changed nothing. Reports the outcome on behalf of that run. The caller must hold the
 * lock. Returns how the run ended; undefined if no run has left anything. Throws DeploymentError `inconsistent` if the
 * journal is damaged, if the host could not be restored, or after 5 failed attempts. Throws as `requireNothingStranded`
 * does. Throws UntouchableHostError if another user could write to a directory in which the run worked. Also throws
 * file system errors, as they are or as a DeployError, and the signal's reason if a cancel leaves services to restore.
 */
export async function recover(host: Host): Promise<ClosedDeployment | undefined> {
  const { layout, log } = host
  await removeStrayTemporaries(layout, log)
  const wasPending = new Set(findPending(layout).map(nameOf))
  const recovered = await recoverJournal(host)
  // No transaction moves a stranded tree, so no rollback moves it back.
  requireNothingStranded(layout)
  const pending = findPending(layout).filter(row => wasPending.has(nameOf(row)))
  await restorePending(host, pending)
  return recovered
}

/**
 * Ends the run whose journal is at the layout's `journal`, and returns how it ended; undefined if there is no journal
 * or an empty one.
 */
async function recoverJournal(host: Host): Promise<ClosedDeployment | undefined> {
  const { layout, log } = host
  const records = readRecords(layout)
  const [begin] = records
  if (begin?.record !== 'begin') {
    await removeLeftovers(host)
    return undefined
  }
  // The run may have been the first to install anything in one of these directories.
  const directories = new Set(changedPlaces(records).map(({ directory }) => directory))
  for (const directory of directories) requireSafeDirectory(host, directory)
  log.group('Recovering an interrupted deployment', 'at once')
  const journal = openJournal(layout.journal, host.secrets.redact)
  try {
    const record = recordFromJournal(begin.facts, records)
    const { drift: _, ...words } = record.facts
    host.secrets.know(words)
    return await recoverRun(host, { begin, records, journal, record })
  } finally {
    journal.close()
  }
}

async function recoverRun(host: Host, run: DeadRun): Promise<ClosedDeployment> {
  const { begin, records, journal, record } = run
  const attempts = countAttempts(host, records)
  const known = findEnd(records)
  verifyRecoverable(host, records)
  if (needsRollback(records))
    await journal.append({ record: 'recovery', at: new Date().toISOString(), by: host.run.id })
  const { end, isUnfinished, unwritten, hasLost } = await endRun(host, run)
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
  await removeLeftovers(host, { id: begin.facts.deployment_id, hasLost })
  logRecovered(host, closed.report, known)
  return closed
}

/** Removes what no recovery needs, once the host's record is as the journal says. */
async function removeLeftovers(host: Host, ended?: EndedRun): Promise<void> {
  const { layout, log } = host
  await retryDiscarded(layout, log)
  if (ended === undefined) await cleanStaging(layout, log)
  else await endJournal(host, ended)
}

/**
 * Logs how the recovery ended, with each problem that remains. If the run had recorded its end, and that end stands,
 * logs only the cleanup, or that the restored version is not healthy.
 */
function logRecovered({ log, recovery }: Host, report: LocalReport, known: DeploymentEnd | undefined): void {
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
async function enterTerminal({ flows }: Host, record: DeploymentRecord, end: DeploymentEnd): Promise<void> {
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
