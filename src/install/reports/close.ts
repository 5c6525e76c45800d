import { toDeployError } from '../../core/errors.ts'
import { listAll } from '../../core/text.ts'
import { isSystemError, toHostError } from '../files/errors.ts'
import { pathExistsSync } from '../files/walk.ts'
import type { Layout } from '../host/layout.ts'
import type { DeploymentEnd } from '../journal/facts.ts'
import type { DeploymentRecord } from '../transaction/record.ts'
import { appendAudit } from './audit.ts'
import type { HostContext } from './host.ts'
import {
  buildLocalReport,
  findAccepted,
  type LocalReport,
  notSent,
  pruneReports,
  type Reported,
  redactReport,
  rewriteLocalReport,
  runningAfter,
  writeLocalReport,
  writeReportElsewhere,
} from './local-report.ts'
import { type AddressedReport, keepInOutbox, removeFromOutbox, sendOutbox } from './outbox.ts'
import type { RunResult } from './result.ts'
import { type Delivery, type ReportSender, refusalVerb, type Undelivered } from './sender.ts'

/** A run that is over and not reported yet. */
export interface Unreported {
  readonly record: DeploymentRecord
  readonly end: DeploymentEnd
  /** The address for the deployment's report (see `ReportSender`); null if there is no hub to report to. */
  readonly address: string | null
  /** Whether this process has the host's lock. Only then does it send the reports that wait in the outbox. */
  readonly isLocked?: boolean
  /**
   * The runner's temporary folder, for the local report if none can be written below the project root; absent if such a
   * report is not wanted, or if a later run writes it.
   */
  readonly temporaryFolder?: string | undefined
  /**
   * If the hub has already accepted this report: the number of attempts that were needed. In that case, the report is
   * not sent again.
   */
  readonly accepted?: number | undefined
  /** Called as soon as the hub has accepted the report. */
  readonly onAccepted?: ((attempts: number) => Promise<void>) | undefined
}

/** The records that could not be written, with their reasons. */
type Failures = Map<string, string>

const LOCAL_REPORT = 'the local report'
const REPORT_TIMEOUT_MS = 10_000

/**
 * Reports how a deployment ended. Always writes the local report first, then reports to the hub, best-effort (contract
 * 4.3, rules 7 and 8), and then writes one audit line. A report that the hub did not accept waits in the outbox. With
 * the lock, first sends the reports that wait there: the hub should get a host's reports in the order of its runs,
 * because the last one counts. Calls `onLocalReport` before it sends anything to the hub, because sending may take more
 * time than a cancelled run has left. Never throws: the result names anything that could not be written, and the
 * outcome does not change.
 */
export async function closeDeployment(
  host: HostContext,
  run: Unreported,
  onLocalReport: (closed: RunResult) => void = () => {},
): Promise<RunResult> {
  const { record, end, address } = run
  const { plannedSteps } = record
  const failures: Failures = new Map()
  const running_version = runningAfter(host.layout, record.facts, end.outcome)
  const known = buildLocalReport(record, end, { reported: notSent('not sent'), running_version })
  const fresh = redactReport(known, host.secrets)
  // An earlier run, whose journal stayed, may already have delivered this report.
  const accepted = findAccepted(host.layout, fresh)
  const unsent = accepted === undefined ? fresh : { ...fresh, reported: accepted }
  const own = await orNote(failures, LOCAL_REPORT, () => writeLocalReport(host, unsent))
  const written = own ?? (await writeElsewhere(host, run, { failures, report: unsent }))
  onLocalReport({ report: unsent, reportPath: written, plannedSteps })
  const { sender, grace } = host
  const { deployment_id: next } = unsent
  if (run.isLocked && sender !== undefined) await sendOutbox({ ...host, sender, signal: grace.cancelled, next })
  const attempts = run.accepted ?? accepted?.attempts
  const { reported, delivery } = await deliver(host, { ...run, accepted: attempts }, unsent)
  if (reported.accepted) removeFromOutbox(host.layout, unsent)
  if (address !== null && !reported.accepted)
    await orNote(failures, 'the report in the outbox', () => keepInOutbox(host, { address, report: unsent }))
  const report = { ...unsent, reported }
  const reportPath = await orNote(failures, LOCAL_REPORT, () =>
    written === undefined ? writeLocalReport(host, report) : rewriteLocalReport(host, written, report),
  )
  if (own !== undefined && reportPath !== undefined && host.keepReports !== undefined)
    pruneReports(reportPath, report.slug, host.keepReports)
  await orNote(failures, 'the audit line', () => appendAudit(host, report))
  return { report, reportPath, plannedSteps, delivery, unwritten: summarize(failures, host.layout) }
}

/**
 * Reports a deployment without writing below the project root: for use if nothing may be written there, or if there is
 * no project root. Writes the local report into the temporary folder of `run`, if it has one, and reports to the hub,
 * best-effort. Calls `onKnown` before it sends anything. Never throws.
 */
export async function closeUntouched(
  host: Pick<HostContext, 'sender' | 'log' | 'secrets' | 'grace'>,
  run: Pick<Unreported, 'record' | 'end' | 'temporaryFolder'>,
  onKnown: (closed: RunResult) => void = () => {},
): Promise<RunResult> {
  const { sender, log, secrets, grace } = host
  const { record, end } = run
  const { previous_version: running_version } = record.facts
  const circumstances = { reported: notSent('not sent'), running_version }
  const unsent = redactReport(buildLocalReport(record, end, circumstances), secrets)
  const failures: Failures = new Map()
  const reportPath = await writeElsewhere(host, run, { failures, report: unsent })
  const known = { report: unsent, reportPath, plannedSteps: record.plannedSteps, unwritten: describeFailures(failures) }
  onKnown(known)
  if (sender === undefined) return known
  const delivery = await sendNow({ sender, grace }, unsent)
  const { attempts } = delivery
  if (!delivery.accepted) log.warning(describeUndelivered(delivery, unsent, unsent.deployment_id))
  const error = delivery.accepted ? null : secrets.redact(delivery.error)
  const report = { ...unsent, reported: { accepted: delivery.accepted, attempts, error } }
  if (reportPath !== undefined) await orNote(failures, LOCAL_REPORT, () => rewriteLocalReport(host, reportPath, report))
  return { ...known, report, delivery, unwritten: describeFailures(failures) }
}

async function writeElsewhere(
  host: Pick<HostContext, 'secrets'>,
  { temporaryFolder }: Pick<Unreported, 'temporaryFolder'>,
  { failures, report }: { readonly failures: Failures; readonly report: LocalReport },
): Promise<string | undefined> {
  if (temporaryFolder === undefined) return undefined
  return await orNote(failures, LOCAL_REPORT, () => writeReportElsewhere(host, temporaryFolder, report))
}

interface Delivered {
  reported: Reported
  delivery?: Delivery
}

/** Sends the report, unless it has no address, the hub has accepted it, or this run's sender has another address. */
async function deliver(host: HostContext, run: Unreported, report: LocalReport): Promise<Delivered> {
  const { address, accepted, onAccepted } = run
  if (accepted !== undefined) return { reported: { accepted: true, attempts: accepted, error: null } }
  if (address === null) return { reported: report.reported }
  const delivered = await send(host, { address, report })
  if (delivered.reported.accepted) await onAccepted?.(delivered.reported.attempts)
  return delivered
}

async function send(host: HostContext, { address, report }: AddressedReport): Promise<Delivered> {
  const { sender, log, secrets, grace } = host
  if (sender?.address !== address)
    return {
      reported: notSent(
        'waits in the outbox for a run that reports the same plugin, service or project to the same hub',
      ),
    }
  const delivery = await sendNow({ sender, grace }, report)
  const { attempts } = delivery
  if (delivery.accepted) return { reported: { accepted: true, attempts, error: null }, delivery }
  log.warning(describeUndelivered(delivery, report, host.run.id))
  return { reported: { accepted: false, attempts, error: secrets.redact(delivery.error) }, delivery }
}

/** Does not repeat the error that made the run itself fail, because the reader has already seen it. */
function describeUndelivered(delivery: Undelivered, { error, deployment_id: id }: LocalReport, ownId: string): string {
  const run = id === ownId ? 'this run' : `the interrupted run ${id}`
  const refusal = `The hub ${refusalVerb(delivery)} the report of ${run}`
  if (error?.message.includes(delivery.error)) return `${refusal}, for the same reason that the run failed.`
  return `${refusal} (this changes nothing on this host): ${delivery.error}`
}

async function sendNow(
  { sender, grace }: Pick<HostContext, 'grace'> & { readonly sender: ReportSender },
  report: LocalReport,
): Promise<Delivery> {
  return await sender.send(report, { retry: true, timeoutMs: REPORT_TIMEOUT_MS, signal: grace.reporting })
}

/** Notes a failure. If a later attempt for the same subject succeeds, removes the note. */
async function orNote<T>(failures: Failures, subject: string, write: () => Promise<T>): Promise<T | undefined> {
  try {
    const written = await write()
    failures.delete(subject)
    return written
  } catch (error) {
    failures.set(
      subject,
      (isSystemError(error) ? toHostError(error, `writing ${subject}`) : toDeployError(error)).message,
    )
    return undefined
  }
}

/**
 * Gives only the first reason, because all writes usually fail for the same reason, for example because their folder is
 * missing.
 */
function summarize(failures: Failures, { own }: Layout): string | undefined {
  return describeFailures(failures, isMissing(own) ? `there is no ${own}.` : undefined)
}

function describeFailures(failures: Failures, cause?: string): string | undefined {
  const [reason] = failures.values()
  return reason && `Could not write ${listAll([...failures.keys()])}: ${cause ?? reason}`
}

/** Also false if the path cannot be examined, because reporting never throws. */
function isMissing(path: string): boolean {
  try {
    return !pathExistsSync(path)
  } catch {
    return false
  }
}
