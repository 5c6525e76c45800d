import type { DeployError } from '../core/errors.ts'
import { type DeploymentTools, type EndedDeployment, hostOf } from '../install/deployment/deployment.ts'
import { refuseDeployment } from '../install/deployment/refuse.ts'
import type { Host } from '../install/reports/host.ts'
import type { ReportSender } from '../install/reports/report-sender.ts'
import { initialFacts } from './deployment.ts'
import type { IncompleteRollback } from './request.ts'

/** The reason for refusing a request, and the sender of its report, if the run reports to a hub. */
export interface RollbackRefusal {
  readonly error: DeployError
  readonly sender: ReportSender | undefined
}

/**
 * Ends a run whose inputs cannot be used, as `refuseDeployment` does. A dry run writes and sends no report. The hub
 * gets no report either if `host-id` or `dry-run` is malformed: with the latter, the operator may have meant a dry run.
 */
export async function refuseRollback(
  request: IncompleteRollback,
  { error, sender }: RollbackRefusal,
  tools: DeploymentTools,
): Promise<EndedDeployment> {
  const isReal = request.dryRun === false && request.hostId !== undefined
  const refusal = {
    error,
    facts: initialFacts(request, tools),
    projectRoot: request.dryRun === true ? undefined : request.projectRoot,
    allowSharedRoot: request.allowSharedRoot ?? false,
    hostConfig: request.hostConfig,
    keepReports: request.keepReports,
    sender: isReal ? sender : undefined,
  }
  return await refuseDeployment(refusal, tools)
}

/** Returns the host that a request names; undefined without a project root. */
export function hostFor(
  { projectRoot, allowSharedRoot = false, hostConfig }: IncompleteRollback,
  sender: ReportSender | undefined,
  tools: DeploymentTools,
): Host | undefined {
  return projectRoot === undefined ? undefined : hostOf(tools, { projectRoot, allowSharedRoot, hostConfig, sender })
}
