import { stat } from 'node:fs/promises'
import type { DeployError } from '../core/errors.ts'
import { createStateMachine } from '../core/state-machine.ts'
import { closeDeployment } from '../install/close-deployment.ts'
import type { DeploymentEnd } from '../install/deployment-end.ts'
import { createDeploymentRecord, type DeploymentRecord } from '../install/deployment-record.ts'
import { prepareHost } from '../install/host.ts'
import { recoverBeforeRefusal } from '../install/host-session.ts'
import { layoutOf } from '../install/layout.ts'
import { buildLocalReport, type LocalReport, redactReport } from '../install/local-report.ts'
import type { ReportSender } from '../install/outbox.ts'
import { reportTimeout } from '../install/report-timeout.ts'
import { createMarketplaceClient } from './client.ts'
import type { DeployResult, DeployTools, IncompleteRequest } from './deploy-request.ts'
import { createReportSender } from './hub-report.ts'
import { initialFacts } from './run.ts'
import { DEPLOY_TRANSITIONS } from './states.ts'

export type RefuseTools = Pick<DeployTools, 'reportWire' | 'log' | 'now' | 'redact' | 'run' | 'deploymentId'>

/**
 * Ends a run whose inputs cannot be used: with a local report when the project root is there, and a report to the hub
 * when enough is known to send one (contract 4.3, rule 7). Creates no project root. A dry run tells nobody, and one that
 * may have been meant as such does not tell the hub.
 */
export async function refuseRequest(
  request: IncompleteRequest,
  error: DeployError,
  tools: RefuseTools,
): Promise<DeployResult> {
  const record = createDeploymentRecord(
    initialFacts({ ...request, hostId: request.hostId ?? '' }, tools),
    createStateMachine(DEPLOY_TRANSITIONS, 'pending', tools.now).history,
  )
  const end = refusedEnd(error, tools)
  const rest = { installPath: undefined, error, plannedSteps: [] }
  const isReal = request.dryRun === false && request.hostId !== undefined
  const sender = isReal ? senderFor(request, tools) : undefined
  if (request.dryRun === true || !(await isDirectory(request.projectRoot)))
    return { report: await closeWithoutHost(record, end, sender, tools), reportPath: undefined, ...rest }
  const { log, redact } = tools
  const host = {
    layout: layoutOf(request.projectRoot as string),
    log,
    redact,
    sender,
    reportTimeoutMs: reportTimeout(),
  }
  await prepareHost(host.layout, log).catch(() => {})
  const told = await recoverBeforeRefusal(host, tools.run.url, end)
  return { ...(await closeDeployment(host, record, told, sender?.address ?? null)), ...rest }
}

/** The way to the hub, when enough of the inputs is known. */
export function senderFor(
  { bases, slug, kind, apiKey }: IncompleteRequest,
  tools: Pick<DeployTools, 'reportWire'>,
): ReportSender | undefined {
  if (bases === undefined || slug === undefined || kind === undefined || apiKey === undefined) return undefined
  const client = createMarketplaceClient(tools.reportWire, bases, { kind, slug }, apiKey)
  return createReportSender(client, bases.deployments, { kind, slug })
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

async function isDirectory(path: string | undefined): Promise<boolean> {
  if (path === undefined) return false
  return stat(path).then(
    found => found.isDirectory(),
    () => false,
  )
}
