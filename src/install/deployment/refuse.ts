import { statSync } from 'node:fs'
import type { DeployError } from '../../core/errors.ts'
import { layoutOf } from '../host/layout.ts'
import { prepareHost } from '../host/readiness.ts'
import { closeDeployment } from '../reports/close.ts'
import { buildLocalReport, type LocalReport, redactReport } from '../reports/local-report.ts'
import type { ReportSender } from '../reports/outbox.ts'
import { reportTimeout } from '../reports/report-timeout.ts'
import type { DeploymentEnd } from '../transaction/end.ts'
import type { DeploymentFacts } from '../transaction/facts.ts'
import { createDeploymentRecord, type DeploymentRecord } from '../transaction/record.ts'
import type { DeploymentTools } from './deployment.ts'
import type { EndedDeployment } from './run.ts'
import { recoverBeforeRefusal } from './session.ts'

export type RefuseTools = Pick<DeploymentTools, 'reportWire' | 'log' | 'now' | 'redact' | 'run' | 'deploymentId'>

export interface Refusal {
  error: DeployError
  facts: DeploymentFacts
  /** Undefined when the host is not to be touched, or nobody knows which one it is. */
  projectRoot: string | undefined
  /** Undefined when the hub is not to be told, or nobody knows how. */
  sender: ReportSender | undefined
}

/**
 * Ends a deployment that was refused before it began: with a local report when the project root is there, and a report to
 * the hub when there is a way to it (contract 4.3, rule 7). Creates no project root.
 */
export async function refuseDeployment(
  { error, facts, projectRoot, sender }: Refusal,
  tools: RefuseTools,
): Promise<EndedDeployment> {
  const record = createDeploymentRecord(facts, [{ state: 'pending', at: tools.now().toISOString() }])
  const end = refusedEnd(error, tools)
  if (projectRoot === undefined || !isDirectory(projectRoot))
    return { report: await closeWithoutHost(record, end, sender, tools), reportPath: undefined, error }
  const { log, redact } = tools
  const host = { layout: layoutOf(projectRoot), log, redact, sender, reportTimeoutMs: reportTimeout() }
  await prepareHost(host.layout, log).catch(() => {})
  const told = await recoverBeforeRefusal(host, tools.run.url, end)
  return { ...(await closeDeployment(host, record, told, sender?.address ?? null)), error }
}

function refusedEnd({ code, message }: DeployError, { now }: RefuseTools): DeploymentEnd {
  return {
    outcome: 'failed',
    changed: false,
    error: { code, message, step: null },
    rollback: null,
    completed_at: now().toISOString(),
  }
}

/** Where no file can lie, the hub can still be told. */
async function closeWithoutHost(
  record: DeploymentRecord,
  end: DeploymentEnd,
  sender: ReportSender | undefined,
  { log, redact }: RefuseTools,
): Promise<LocalReport> {
  const unsent = { accepted: false, attempts: 0, error: 'not sent' }
  const report = redactReport(buildLocalReport(record, end, unsent), redact)
  if (sender === undefined) return report
  const delivery = await sender.send(report, { retry: true, timeoutMs: reportTimeout()() })
  if (delivery.accepted) return { ...report, reported: { accepted: true, attempts: delivery.attempts, error: null } }
  log.warning(`The hub was not told of this run: ${delivery.error}`)
  return { ...report, reported: { accepted: false, attempts: delivery.attempts, error: redact(delivery.error) } }
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path).isDirectory()
  } catch {
    return false
  }
}
