import type { DeployError } from '../core/errors.ts'
import type { DeploymentTools } from '../install/deployment/deployment.ts'
import { type RefuseTools, refuseDeployment } from '../install/deployment/refuse.ts'
import type { ReportSender } from '../install/reports/outbox.ts'
import { createMarketplaceClient } from './client.ts'
import { createReportSender } from './hub-report.ts'
import type { DeployResult, IncompleteRequest } from './request.ts'
import { initialFacts } from './run.ts'

/**
 * Ends a run whose inputs cannot be used, as `refuseDeployment` does. A dry run tells nobody, and one that may have been
 * meant as such does not tell the hub.
 */
export async function refuseRequest(
  request: IncompleteRequest,
  error: DeployError,
  tools: RefuseTools,
): Promise<DeployResult> {
  const isReal = request.dryRun === false && request.hostId !== undefined
  const refusal = {
    error,
    facts: initialFacts({ ...request, hostId: request.hostId ?? '' }, tools),
    projectRoot: request.dryRun === true ? undefined : request.projectRoot,
    sender: isReal ? senderFor(request, tools) : undefined,
  }
  return { ...(await refuseDeployment(refusal, tools)), installPath: undefined, plannedSteps: [] }
}

/** The way to the hub, when enough of the inputs is known. */
export function senderFor(
  { bases, slug, kind, apiKey }: IncompleteRequest,
  tools: Pick<DeploymentTools, 'reportWire'>,
): ReportSender | undefined {
  if (bases === undefined || slug === undefined || kind === undefined || apiKey === undefined) return undefined
  const client = createMarketplaceClient(tools.reportWire, bases, { kind, slug }, apiKey)
  return createReportSender(client, bases.deployments, { kind, slug })
}
