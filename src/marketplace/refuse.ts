import type { DeployError } from '../core/errors.ts'
import { type DeploymentTools, type EndedDeployment, hostOf } from '../install/deployment/deployment.ts'
import { refuseDeployment } from '../install/deployment/refuse.ts'
import type { Host } from '../install/reports/host.ts'
import type { ReportSender } from '../install/reports/report-sender.ts'
import { createMarketplaceClient } from './api/client.ts'
import { createReportSender } from './api/hub-report.ts'
import { initialFacts } from './deployment.ts'
import type { IncompleteRequest } from './request.ts'

/**
 * Ends a run whose inputs cannot be used, as `refuseDeployment` does. Neither a dry run nor a check writes or sends a
 * report. The hub gets no report either if `host-id`, `dry-run` or `check-only` is malformed: with the last two, the
 * operator may have meant a run that reports nothing.
 */
export async function refuseRequest(
  request: IncompleteRequest,
  error: DeployError,
  tools: DeploymentTools,
): Promise<EndedDeployment> {
  const { dryRun, checkOnly } = request
  const isReal = dryRun === false && checkOnly === false && request.hostId !== undefined
  const refusal = {
    error,
    facts: initialFacts(request, tools),
    projectRoot: dryRun === true || checkOnly === true ? undefined : request.projectRoot,
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
export function hostFor(request: IncompleteRequest, tools: DeploymentTools): Host | undefined {
  const { projectRoot, allowSharedRoot = false, hostConfig } = request
  if (projectRoot === undefined) return undefined
  return hostOf(tools, { projectRoot, allowSharedRoot, hostConfig, sender: senderFor(request, tools) })
}

/** Returns undefined if the inputs are not enough for a sender. */
function senderFor(
  { bases, slug, kind, apiKey }: IncompleteRequest,
  { wires }: DeploymentTools,
): ReportSender | undefined {
  if (bases === undefined || slug === undefined || kind === undefined || apiKey === undefined) return undefined
  const access = { bases, slug, kind, apiKey }
  return createReportSender(createMarketplaceClient(wires.reportWire, access), access)
}
