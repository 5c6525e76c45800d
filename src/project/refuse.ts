import type { DeployError } from '../core/errors.ts'
import { type DeploymentTools, type EndedDeployment, hostOf } from '../install/deployment/deployment.ts'
import { refuseDeployment } from '../install/deployment/refuse.ts'
import type { Host } from '../install/reports/host.ts'
import type { ReportSender } from '../install/reports/report-sender.ts'
import { createProjectClient } from './api/client.ts'
import { createReportSender } from './api/hub-report.ts'
import { initialFacts } from './deployment.ts'
import type { IncompleteProjectRequest } from './request.ts'

/**
 * Ends a run whose inputs cannot be used, as `refuseDeployment` does. A dry run writes and sends no report. If
 * `dry-run` is malformed, the operator may have meant a dry run. The run then sends nothing to the hub, because the
 * contract has no field for a dry run (contract 2.2).
 */
export async function refuseProject(
  request: IncompleteProjectRequest,
  error: DeployError,
  tools: DeploymentTools,
): Promise<EndedDeployment> {
  const { dryRun } = request
  const isReal = dryRun === false && request.hostId !== undefined
  const refusal = {
    error,
    facts: initialFacts(request, tools),
    projectRoot: dryRun === true ? undefined : request.projectRoot,
    allowSharedRoot: request.allowSharedRoot ?? false,
    hostConfig: request.hostConfig,
    keepReports: request.keepReports,
    sender: isReal ? senderFor(request, tools) : undefined,
  }
  return await refuseDeployment(refusal, tools)
}

/**
 * Returns the host that a request names; undefined without a project root. The host has a sender of reports if the
 * inputs are enough for one.
 */
export function hostFor(request: IncompleteProjectRequest, tools: DeploymentTools): Host | undefined {
  const { projectRoot, allowSharedRoot = false, hostConfig } = request
  if (projectRoot === undefined) return undefined
  return hostOf(tools, { projectRoot, allowSharedRoot, hostConfig, sender: senderFor(request, tools) })
}

/** Returns undefined if the inputs are not enough for a sender. */
function senderFor(
  { hubUrl, devkey, projectId }: IncompleteProjectRequest,
  { wires, secrets }: DeploymentTools,
): ReportSender | undefined {
  if (hubUrl === undefined || devkey === undefined || projectId === undefined) return undefined
  const access = { hubUrl, devkey, projectId, secrets }
  return createReportSender(
    createProjectClient({ wire: wires.reportWire, reportWire: wires.reportWire }, access),
    access,
  )
}
