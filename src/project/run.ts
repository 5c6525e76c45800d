import { type DeploymentRun, type DeploymentTools, startDeployment } from '../install/deployment/deployment.ts'
import type { DeploymentFacts } from '../install/transaction/facts.ts'
import { createProjectClient, type ProjectClient } from './client.ts'
import { createReportSender } from './hub-report.ts'
import type { ProjectRequest } from './request.ts'
import { PROJECT_TRANSITIONS, type ProjectState } from './states.ts'

/** One project deployment under way. */
export interface Run extends DeploymentRun<ProjectState> {
  readonly request: ProjectRequest
  readonly client: ProjectClient
}

export function startRun(request: ProjectRequest, tools: DeploymentTools): Run {
  const client = createProjectClient(tools, { ...request, hide: tools.hide })
  const start = {
    transitions: PROJECT_TRANSITIONS,
    initial: 'pending' as const,
    facts: initialFacts(request, tools),
    sender: createReportSender(client, request.hubUrl, request.projectId),
  }
  return {
    ...startDeployment<ProjectState>(request, tools, start),
    request,
    client,
  }
}

type Known = { [K in 'projectId' | 'version']?: ProjectRequest[K] | undefined } & Pick<ProjectRequest, 'hostId'>

/** What is known of a deployment before it starts. */
export function initialFacts(
  known: Known,
  tools: Pick<DeploymentTools, 'deploymentId' | 'now' | 'run'>,
): DeploymentFacts {
  return {
    deployment_id: tools.deploymentId,
    contract: 'project',
    kind: null,
    slug: known.projectId ?? null,
    id: null,
    requested_version: known.version ?? null,
    version: null,
    version_source: null,
    previous_version: null,
    artifact_sha256: null,
    artifact_size: null,
    repo: null,
    host_id: known.hostId,
    started_at: tools.now().toISOString(),
    run: tools.run,
  }
}
