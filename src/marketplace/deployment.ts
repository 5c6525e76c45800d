import type { Transitions } from '../core/state-machine.ts'
import {
  type DeploymentTools,
  type RunningDeployment,
  startDeployment as startOnHost,
} from '../install/deployment/deployment.ts'
import { shelfOf } from '../install/host/installed/row-place.ts'
import type { Shelf } from '../install/host/layout.ts'
import type { InstallOrder } from '../install/steps/step-context.ts'
import type { DeploymentFacts } from '../install/transaction/facts.ts'
import { createMarketplaceClient, type MarketplaceClient } from './api/client.ts'
import { createReportSender } from './api/hub-report.ts'
import type { DeployRequest } from './request.ts'
import { CHECK_TRANSITIONS, type CheckState, type DeployState, MARKETPLACE_TRANSITIONS } from './states.ts'

export interface ArtifactDeployment<State extends string = DeployState> extends RunningDeployment<State> {
  readonly request: DeployRequest
  readonly shelf: Shelf
  readonly client: MarketplaceClient
}

export function startDeployment(request: DeployRequest, tools: DeploymentTools): ArtifactDeployment {
  return startBy(MARKETPLACE_TRANSITIONS, request, tools)
}

/** Starts a check of what an earlier deployment installed. */
export function startCheck(request: DeployRequest, tools: DeploymentTools): ArtifactDeployment<CheckState> {
  return startBy(CHECK_TRANSITIONS, request, tools)
}

function startBy<State extends string>(
  transitions: Transitions<State | 'pending'>,
  request: DeployRequest,
  tools: DeploymentTools,
): ArtifactDeployment<State> {
  const sender = createReportSender(createMarketplaceClient(tools.wires.reportWire, request), request)
  const start = { transitions, facts: initialFacts(request, tools), sender }
  return Object.assign(startOnHost<State>(request, tools, start), {
    request,
    shelf: shelfOf(request.kind),
    client: createMarketplaceClient(tools.wires.wire, request),
  })
}

/** The origin of everything that this deployment installs, for `installed.json`. */
export function originOf({ request }: Pick<ArtifactDeployment, 'request'>): InstallOrder['origin'] {
  return { contract: 'marketplace', slug: request.slug, project_version: null }
}

type Known = { [K in 'kind' | 'slug' | 'version' | 'hostId']?: DeployRequest[K] | undefined }

/** Returns the facts about a deployment that are known before it starts; each unknown one is null. */
export function initialFacts(
  known: Known,
  { deploymentId, now, runner }: Pick<DeploymentTools, 'deploymentId' | 'now' | 'runner'>,
): DeploymentFacts {
  return {
    deployment_id: deploymentId,
    contract: 'marketplace',
    kind: known.kind ?? null,
    slug: known.slug ?? null,
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
