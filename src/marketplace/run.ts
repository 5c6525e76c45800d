import { createStateMachine, type StateMachine } from '../core/state-machine.ts'
import type { ClosingHost } from '../install/close-deployment.ts'
import type { DeploymentFacts } from '../install/deployment-facts.ts'
import { createDeploymentRecord, type DeploymentRecord } from '../install/deployment-record.ts'
import { shelfOf } from '../install/installed.ts'
import { type Layout, layoutOf, type Shelf } from '../install/layout.ts'
import { reportTimeout } from '../install/report-timeout.ts'
import { createMarketplaceClient, type MarketplaceClient } from './client.ts'
import type { DeployRequest, DeployTools } from './deploy-request.ts'
import { createReportSender } from './hub-report.ts'
import { DEPLOY_TRANSITIONS, type DeployState } from './states.ts'

/** One deployment under way: what is asked, what it works with, what is known so far. */
export interface Run {
  readonly request: DeployRequest
  readonly tools: DeployTools
  readonly layout: Layout
  readonly shelf: Shelf
  readonly client: MarketplaceClient
  readonly host: ClosingHost
  readonly record: DeploymentRecord
  readonly machine: StateMachine<DeployState>
  /** Moves to the next state: table, journal and log. */
  enter(state: DeployState): Promise<void>
}

export function startRun(request: DeployRequest, tools: DeployTools): Run {
  const machine = createStateMachine(DEPLOY_TRANSITIONS, 'pending', tools.now)
  const layout = layoutOf(request.projectRoot)
  const record = createDeploymentRecord(initialFacts(request, tools), machine.history)
  const reporter = createMarketplaceClient(tools.reportWire, request.bases, request, request.apiKey)
  const sender = createReportSender(reporter, request.bases.deployments, request)
  return {
    request,
    tools,
    layout,
    shelf: shelfOf(request.kind),
    client: createMarketplaceClient(tools.wire, request.bases, request, request.apiKey),
    host: { layout, log: tools.log, redact: tools.redact, sender, reportTimeoutMs: reportTimeout(tools.signal) },
    record,
    machine,
    async enter(state) {
      const change = machine.enter(state)
      tools.log.group(state)
      await record.enter(change)
    },
  }
}

type Known = { [K in 'kind' | 'slug' | 'version']?: DeployRequest[K] | undefined } & Pick<DeployRequest, 'hostId'>

/** What is known of a deployment before it starts. */
export function initialFacts(known: Known, tools: Pick<DeployTools, 'deploymentId' | 'now' | 'run'>): DeploymentFacts {
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
