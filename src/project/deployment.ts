import type { ExtractionLimits } from '../core/archive/policy.ts'
import type { SourcedPart } from '../core/content/manifest.ts'
import type { DeployError } from '../core/errors.ts'
import type { Transitions } from '../core/state-machine.ts'
import type { SignerKey } from '../core/trust/signature.ts'
import type { NamedTree } from '../install/files/extracted-tree.ts'
import type { SourceRecord } from '../install/host/rows.ts'
import type { DeploymentFacts } from '../install/journal/facts.ts'
import type { Host } from '../install/reports/host.ts'
import type { ReportSender } from '../install/reports/sender.ts'
import {
  type DeploymentTools,
  type EndedDeployment,
  hostOf,
  type RunningDeployment,
  startDeployment as startOnHost,
} from '../install/run/deployment.ts'
import { refuseDeployment } from '../install/run/refuse.ts'
import type { HostRequest } from '../install/transaction/record.ts'
import { createProjectClient, createReportSender, type ProjectClient } from './hub.ts'

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
function initialFacts(
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

export type ProjectState =
  | 'pending'
  | 'authenticating'
  | 'requesting_artifact'
  | 'downloading'
  | 'verifying_signature'
  | 'obtaining_key'
  | 'decrypting'
  | 'extracting'
  | 'verifying_manifest'
  | 'validating_project'
  | 'resolving_sequence'
  | 'installing'
  | 'healthchecking'
  | 'notifying'
  | 'succeeded'
  | 'failed'
  | 'rolled_back'

/**
 * The states of the project flow. Every path to `obtaining_key` passes `verifying_signature`, and every path to
 * `installing` also passes `decrypting` and `verifying_manifest`.
 */
export const PROJECT_TRANSITIONS: Transitions<ProjectState> = {
  pending: ['authenticating'],
  authenticating: ['requesting_artifact', 'failed'],
  requesting_artifact: ['downloading', 'failed'],
  downloading: ['verifying_signature', 'failed'],
  verifying_signature: ['obtaining_key', 'failed'],
  obtaining_key: ['decrypting', 'failed'],
  decrypting: ['extracting', 'failed'],
  extracting: ['verifying_manifest', 'failed'],
  verifying_manifest: ['validating_project', 'failed'],
  validating_project: ['resolving_sequence', 'failed'],
  resolving_sequence: ['installing', 'failed'],
  installing: ['healthchecking', 'failed', 'rolled_back'],
  healthchecking: ['notifying', 'failed', 'rolled_back'],
  notifying: ['succeeded', 'failed', 'rolled_back'],
  succeeded: [],
  failed: [],
  rolled_back: [],
}

/** The operator's request: parsed, and independent of its source. */
export interface ProjectRequest extends HostRequest {
  hubUrl: string
  /** Sent as `xdevkey`. */
  devkey: string
  projectId: string
  /** The ids that the project's parts may have; undefined to accept any. */
  projectIds: readonly string[] | undefined
  deploymentCredential: string
  /** The pinned keys; at least one. */
  signerKeys: readonly SignerKey[]
  /** A version, or `latest`. */
  version: string
  pluginSecretKey: string | undefined
  artifactSha256: string | undefined
  allowDowngrade: boolean
  downloadTimeoutMs: number
  maxArtifactBytes: number
  extraction: ExtractionLimits
}

/** A request with inputs that may be missing or malformed. */
export type IncompleteProjectRequest = { [K in keyof ProjectRequest]: ProjectRequest[K] | undefined } & {
  /** True for a dry run, which the project action does not support; undefined if the input is malformed. */
  readonly dryRun: boolean | undefined
}

/**
 * Ends a run whose inputs cannot be used, as `refuseDeployment` does. A dry run writes and sends no report. If
 * `dry-run` is malformed, the operator may have meant a dry run. The run then sends nothing to the hub, because the
 * contract has no field for a dry run (contract 2.2).
 */
export async function refuseProject(
  request: IncompleteProjectRequest,
  error: DeployError,
  tools: DeploymentTools,
): Promise<EndedDeployment> {
  const { dryRun } = request
  const isReal = dryRun === false && request.hostId !== undefined
  const refusal = {
    error,
    facts: initialFacts(request, tools),
    projectRoot: dryRun === true ? undefined : request.projectRoot,
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
export function hostFor(request: IncompleteProjectRequest, tools: DeploymentTools): Host | undefined {
  const { projectRoot, allowSharedRoot = false, hostConfig } = request
  if (projectRoot === undefined) return undefined
  return hostOf(tools, { projectRoot, allowSharedRoot, hostConfig, sender: senderFor(request, tools) })
}

/** Returns undefined if the inputs are not enough for a sender. */
function senderFor(
  { hubUrl, devkey, projectId }: IncompleteProjectRequest,
  { wires, secrets }: DeploymentTools,
): ReportSender | undefined {
  if (hubUrl === undefined || devkey === undefined || projectId === undefined) return undefined
  const access = { hubUrl, devkey, projectId, secrets }
  return createReportSender(
    createProjectClient({ wire: wires.reportWire, reportWire: wires.reportWire }, access),
    access,
  )
}

/** A part to fetch, with the folder for it and the history of its place. */
interface WantedPart {
  readonly part: SourcedPart
  /** A private folder, empty at first. The supplier puts the part's tree into it. */
  readonly folder: string
  readonly past: PartPast
}

/** The history of a part's place on this host. */
export interface PartPast {
  /** The version that is installed there now; undefined unless this project installed it from a source. */
  readonly installed: SuppliedVersion | undefined
  /** The versions that this project has installed there from any source, and that are still there or retained. */
  readonly history: readonly SuppliedVersion[]
  /**
   * True if this project installed exactly this content on this host and later replaced it, according to the host's
   * records and audit log (`wasSupplyReplaced`).
   */
  wasReplaced(source: SourceRecord): boolean
}

/** A version of a part that was fetched from a source. */
export interface SuppliedVersion {
  readonly version: string | null
  readonly source: SourceRecord
}

/** A part's tree as it was fetched, verified by the rules of its source. */
export interface FetchedPart {
  /** The folder that contains the tree. */
  readonly staged: string
  readonly tree: NamedTree
  /** The version that the source gives; undefined if only the part's plugin.yaml or the manifest may give one. */
  readonly version: string | undefined
  /** The source, for the host's record. */
  readonly source: SourceRecord
}

/**
 * Supplies the parts that a project names but does not contain. This folder imports no other contract's code, so the
 * action passes in the code that fetches from a marketplace or from git.
 */
interface PartSupplier {
  /**
   * Throws ConfigError `missing_input` if the operator left out inputs that these parts need; the error lists all of
   * them.
   */
  requireInputs(parts: readonly SourcedPart[]): void
  /** Fetches and verifies one part. Writes only to `wanted.folder` and to temporary files. */
  fetch(wanted: WantedPart): Promise<FetchedPart>
}
