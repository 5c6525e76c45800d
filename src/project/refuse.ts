import type { DeployError } from '../core/errors.ts'
import type { DeploymentTools } from '../install/deployment/deployment.ts'
import { type RefuseTools, refuseDeployment } from '../install/deployment/refuse.ts'
import type { ReportSender } from '../install/reports/outbox.ts'
import { createProjectClient } from './client.ts'
import { createReportSender } from './hub-report.ts'
import type { IncompleteProjectRequest, ProjectResult } from './request.ts'
import { initialFacts } from './run.ts'

/** Ends a run whose inputs cannot be used, as `refuseDeployment` does. */
export async function refuseProject(
  request: IncompleteProjectRequest,
  error: DeployError,
  tools: RefuseTools & Pick<DeploymentTools, 'hide'>,
): Promise<ProjectResult> {
  const refusal = {
    error,
    facts: initialFacts({ ...request, hostId: request.hostId ?? '' }, tools),
    projectRoot: request.projectRoot,
    sender: request.hostId === undefined ? undefined : senderFor(request, tools),
  }
  return { ...(await refuseDeployment(refusal, tools)), plannedSteps: [] }
}

/** The way to the hub, when enough of the inputs is known. */
export function senderFor(
  { hubUrl, devkey, projectId }: IncompleteProjectRequest,
  tools: Pick<DeploymentTools, 'reportWire' | 'hide'>,
): ReportSender | undefined {
  if (hubUrl === undefined || devkey === undefined || projectId === undefined) return undefined
  const { reportWire, hide } = tools
  const client = createProjectClient({ wire: reportWire, reportWire }, { hubUrl, devkey, projectId, hide })
  return createReportSender(client, hubUrl, projectId)
}
