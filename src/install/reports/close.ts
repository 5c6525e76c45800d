import { toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { isSystemError, toHostError } from '../files/system-errors.ts'
import type { Layout } from '../host/layout.ts'
import type { DeploymentEnd } from '../transaction/end.ts'
import type { DeploymentRecord } from '../transaction/record.ts'
import { appendAudit } from './audit.ts'
import {
  buildLocalReport,
  type LocalReport,
  type Reported,
  redactReport,
  rewriteLocalReport,
  writeLocalReport,
} from './local-report.ts'
import { type Delivery, keepInOutbox, type ReportSender } from './outbox.ts'

export interface ClosingHost {
  layout: Layout
  log: Log
  redact: (text: string) => string
  /** Undefined when there is no hub to tell. */
  sender: ReportSender | undefined
  /** For one report, retries included. */
  reportTimeoutMs: () => number
}

export interface ClosedDeployment {
  report: LocalReport
  /** Undefined when it could not be written. */
  reportPath: string | undefined
  /** What became of the report to the hub; undefined when it was not sent. */
  delivery?: Delivery | undefined
  /** What could not be written here and why, one sentence; for whoever tells how the deployment ended, below its cause. */
  unwritten?: string | undefined
}

/** What could not be written, and why. */
type Failures = Map<string, string>

const LOCAL_REPORT = 'the local report'
const UNSENT: Reported = { accepted: false, attempts: 0, error: 'not sent' }

/**
 * Tells how a deployment ended: the local report first, always; then the hub, as best it can (contract 4.3, rules 7 and 8);
 * what the hub did not accept waits in the outbox; one audit line. `address` is where the report of that deployment belongs,
 * null when there is no hub to tell. `beforeTelling` is called as soon as the host's own part is done: telling the hub may take
 * longer than a cancelled run has. Never throws: what cannot be written is in the result
 * and changes no outcome.
 */
export async function closeDeployment(
  host: ClosingHost,
  record: DeploymentRecord,
  end: DeploymentEnd,
  address: string | null,
  beforeTelling: (closed: ClosedDeployment) => void = () => {},
): Promise<ClosedDeployment> {
  const failures: Failures = new Map()
  const unsent = redactReport(buildLocalReport(record, end, UNSENT), host.redact)
  const written = await orNote(failures, LOCAL_REPORT, () => writeLocalReport(host.layout, unsent, host.redact))
  beforeTelling({ report: unsent, reportPath: written })
  const { reported, delivery } = await tellHub(host, unsent, address, failures)
  const report = { ...unsent, reported }
  const reportPath = await orNote(failures, LOCAL_REPORT, () =>
    written === undefined
      ? writeLocalReport(host.layout, report, host.redact)
      : rewriteLocalReport(written, report, host.redact),
  )
  await orNote(failures, 'the audit line', () => appendAudit(host.layout, report, host.redact))
  return { report, reportPath, delivery, unwritten: describeFailures(failures) }
}

async function tellHub(
  host: ClosingHost,
  report: LocalReport,
  address: string | null,
  failures: Failures,
): Promise<{ reported: Reported; delivery?: Delivery }> {
  const { sender, log, redact } = host
  if (address === null) return { reported: UNSENT }
  if (sender?.address !== address) {
    await keepForLater(host, address, report, failures)
    return { reported: { ...UNSENT, error: 'waits in the outbox for a run that talks to its hub' } }
  }
  const delivery = await sender.send(report, { retry: true, timeoutMs: host.reportTimeoutMs() })
  const { attempts } = delivery
  if (delivery.accepted) return { reported: { accepted: true, attempts, error: null }, delivery }
  log.warning(`The hub was not told of this deployment, which changes nothing on the host: ${delivery.error}`)
  await keepForLater(host, address, report, failures)
  return { reported: { accepted: false, attempts, error: redact(delivery.error) }, delivery }
}

async function keepForLater(
  { layout, redact }: ClosingHost,
  address: string,
  report: LocalReport,
  failures: Failures,
): Promise<void> {
  await orNote(failures, 'the report in the outbox', () => keepInOutbox(layout, address, report, redact))
}

/** A later try that works makes up for an earlier one. */
async function orNote<T>(failures: Failures, what: string, write: () => Promise<T>): Promise<T | undefined> {
  try {
    const written = await write()
    failures.delete(what)
    return written
  } catch (error) {
    failures.set(what, (isSystemError(error) ? toHostError(error, `writing ${what}`) : toDeployError(error)).message)
    return undefined
  }
}

/** What makes one of them fail makes the others fail as a rule, so the first reason is enough. */
function describeFailures(failures: Failures): string | undefined {
  const [reason] = failures.values()
  return reason === undefined ? undefined : `Could not write ${[...failures.keys()].join(', ')}: ${reason}`
}
