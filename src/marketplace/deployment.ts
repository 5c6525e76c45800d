import type { ExtractionLimits } from '../core/archive/policy.ts'
import type { DeployError } from '../core/errors.ts'
import type { Kind } from '../core/identifiers.ts'
import type { Transitions } from '../core/state-machine.ts'
import type { SourceFile } from '../core/yaml/problems.ts'
import { type Shelf, shelfOf } from '../install/host/layout.ts'
import { readInstalled } from '../install/host/record.ts'
import type { DeploymentFacts } from '../install/journal/facts.ts'
import type { Host } from '../install/reports/host.ts'
import type { ReportSender } from '../install/reports/sender.ts'
import {
  type DeploymentTools,
  type EndedDeployment,
  hostOf,
  PLAN_TRANSITIONS,
  type PlanState,
  type RunningDeployment,
  startDeployment as startOnHost,
} from '../install/run/deployment.ts'
import { refuseDeployment } from '../install/run/refuse.ts'
import type { InstallOrder } from '../install/steps/context.ts'
import type { HostRequest } from '../install/transaction/record.ts'
import { createMarketplaceClient, createReportSender, type HubBases, type MarketplaceClient } from './hub.ts'

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
function initialFacts(
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

export type DeployState = 'pending' | 'fetching' | 'verifying_signature' | 'extracting' | PlanState

/** The states of the marketplace flow. Every path to `installing` passes `verifying_signature`. */
export const MARKETPLACE_TRANSITIONS: Transitions<DeployState> = {
  pending: ['fetching'],
  fetching: ['verifying_signature', 'failed'],
  verifying_signature: ['extracting', 'failed'],
  extracting: ['loading_plan', 'failed'],
  ...PLAN_TRANSITIONS,
}

export type CheckState = 'pending' | 'loading_plan' | 'healthchecking' | 'succeeded' | 'failed'

/** The states of a check of the installed version. */
export const CHECK_TRANSITIONS: Transitions<CheckState> = {
  pending: ['loading_plan'],
  loading_plan: ['healthchecking', 'failed'],
  healthchecking: ['succeeded', 'failed'],
  succeeded: [],
  failed: [],
}

/** The operator's request: parsed, and independent of where it was read. */
export interface DeployRequest extends HostRequest {
  bases: HubBases
  slug: string
  /** Undefined if the operator leaves the choice to the host. */
  pluginsDirectory: string | undefined
  kind: Kind
  /** A version, or `latest`. */
  version: string
  apiKey: string
  signingSecret: string
  /** Undefined for the default plan. */
  plan: SourceFile | undefined
  pluginSecretKey: string | undefined
  artifactSha256: string | undefined
  allowDowngrade: boolean
  dryRun: boolean
  /** True to only check the health of what is installed, which must be the named version with the pinned bytes. */
  checkOnly: boolean
  downloadTimeoutMs: number
  maxArtifactBytes: number
  extraction: ExtractionLimits
}

/** A request with inputs that may be missing or malformed. */
export type IncompleteRequest = { [K in keyof DeployRequest]: DeployRequest[K] | undefined }

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

/**
 * Records the installed version of this slug before the plan says where the slug is installed, so that a refused run
 * can report that version.
 */
export async function noteInstalledVersion({ layout, request, record }: ArtifactDeployment): Promise<void> {
  const installed = readInstalled(layout).find(
    ({ contract, kind, slug }) => contract === 'marketplace' && kind === request.kind && slug === request.slug,
  )
  await record.update({ previous_version: installed?.version ?? null })
}
