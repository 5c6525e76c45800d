import { stat } from 'node:fs/promises'
import type { DeployError } from '../core/errors.ts'
import { createStateMachine } from '../core/state-machine.ts'
import { closeDeployment } from '../install/close-deployment.ts'
import type { DeploymentEnd } from '../install/deployment-end.ts'
import { createDeploymentRecord } from '../install/deployment-record.ts'
import { prepareHost } from '../install/host.ts'
import { layoutOf } from '../install/layout.ts'
import { buildLocalReport } from '../install/local-report.ts'
import type { ReportSender } from '../install/outbox.ts'
import { createMarketplaceClient } from './client.ts'
import type { DeployResult, DeployTools, IncompleteRequest } from './deploy-request.ts'
import { createReportSender } from './hub-report.ts'
import { initialFacts } from './run.ts'
import { DEPLOY_TRANSITIONS } from './states.ts'

export type RefuseTools = Pick<DeployTools, 'reportWire' | 'log' | 'now' | 'redact' | 'run' | 'deploymentId'>

/**
 * Ends a run whose inputs cannot be used: with a local report when the project root is there, and a report to the hub
 * when enough is known to send one (contract 4.3, rule 7). Creates no project root.
 */
export async function refuseRequest(
  request: IncompleteRequest,
  error: DeployError,
  tools: RefuseTools,
): Promise<DeployResult> {
  const record = createDeploymentRecord(
    initialFacts(request, tools),
    createStateMachine(DEPLOY_TRANSITIONS, 'pending', tools.now).history,
  )
  const end: DeploymentEnd = {
    outcome: 'failed',
    changed: false,
    error: { code: error.code, message: error.message, step: null },
    rollback: null,
    completed_at: tools.now().toISOString(),
  }
  const rest = { installPath: undefined, error, plannedSteps: [] }
  if (request.dryRun === true || !(await isDirectory(request.projectRoot))) {
    const report = buildLocalReport(record, end, { accepted: false, attempts: 0, error: 'not sent' })
    return { report, reportPath: undefined, ...rest }
  }
  const sender = senderFor(request, tools)
  const host = { layout: layoutOf(request.projectRoot as string), log: tools.log, redact: tools.redact, sender }
  await prepareHost(host.layout, tools.log).catch(() => {})
  return { ...(await closeDeployment(host, record, end, sender?.address ?? null)), ...rest }
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

async function isDirectory(path: string | undefined): Promise<boolean> {
  if (path === undefined) return false
  return stat(path).then(
    found => found.isDirectory(),
    () => false,
  )
}
