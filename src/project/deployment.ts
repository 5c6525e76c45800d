import {
  type DeploymentTools,
  type RunningDeployment,
  startDeployment as startOnHost,
} from '../install/deployment/deployment.ts'
import type { DeploymentFacts } from '../install/transaction/facts.ts'
import { createProjectClient, type ProjectClient } from './api/client.ts'
import { createReportSender } from './api/hub-report.ts'
import type { PartSupplier } from './parts/part-supplier.ts'
import type { ProjectRequest } from './request.ts'
import { PROJECT_TRANSITIONS, type ProjectState } from './states.ts'

export interface ProjectDeployment extends RunningDeployment<ProjectState> {
  readonly request: ProjectRequest
  readonly client: ProjectClient
  readonly supplier: PartSupplier
}

export interface ProjectTools extends DeploymentTools {
  readonly supplier: PartSupplier
}

export function startDeployment(request: ProjectRequest, { supplier, ...tools }: ProjectTools): ProjectDeployment {
  const client = createProjectClient(tools.wires, { ...request, secrets: tools.secrets })
  const start = {
    transitions: PROJECT_TRANSITIONS,
    facts: initialFacts(request, tools),
    sender: createReportSender(client, request),
  }
  return Object.assign(startOnHost<ProjectState>(request, tools, start), { request, client, supplier })
}

type Known = { [K in 'projectId' | 'version' | 'hostId']?: ProjectRequest[K] | undefined }

/** Returns the facts about a deployment that are known before it starts; each unknown one is null. */
export function initialFacts(
  known: Known,
  { deploymentId, now, runner }: Pick<DeploymentTools, 'deploymentId' | 'now' | 'runner'>,
): DeploymentFacts {
  return {
    deployment_id: deploymentId,
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
    host_id: known.hostId ?? '',
    started_at: now().toISOString(),
    run: runner.workflow,
  }
}
