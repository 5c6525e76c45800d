import type { DeploymentTools } from '../install/deployment/deployment.ts'
import { type DeploymentRun, startDeployment } from '../install/deployment/deployment.ts'
import { shelfOf } from '../install/host/installed.ts'
import type { Shelf } from '../install/host/layout.ts'
import type { DeploymentFacts } from '../install/transaction/facts.ts'
import { createMarketplaceClient, type MarketplaceClient } from './client.ts'
import { createReportSender } from './hub-report.ts'
import type { DeployRequest } from './request.ts'
import { DEPLOY_TRANSITIONS, type DeployState } from './states.ts'

/** One marketplace deployment under way. */
export interface Run extends DeploymentRun<DeployState> {
  readonly request: DeployRequest
  readonly shelf: Shelf
  readonly client: MarketplaceClient
}

export function startRun(request: DeployRequest, tools: DeploymentTools): Run {
  const reporter = createMarketplaceClient(tools.reportWire, request.bases, request, request.apiKey)
  const start = {
    transitions: DEPLOY_TRANSITIONS,
    initial: 'pending' as const,
    facts: initialFacts(request, tools),
    sender: createReportSender(reporter, request.bases.deployments, request),
  }
  return {
    ...startDeployment<DeployState>(request, tools, start),
    request,
    shelf: shelfOf(request.kind),
    client: createMarketplaceClient(tools.wire, request.bases, request, request.apiKey),
  }
}

type Known = { [K in 'kind' | 'slug' | 'version']?: DeployRequest[K] | undefined } & Pick<DeployRequest, 'hostId'>

/** What is known of a deployment before it starts. */
export function initialFacts(
  known: Known,
  tools: Pick<DeploymentTools, 'deploymentId' | 'now' | 'run'>,
): DeploymentFacts {
  return {
    deployment_id: tools.deploymentId,
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
    host_id: known.hostId,
    started_at: tools.now().toISOString(),
    run: tools.run,
  }
}
