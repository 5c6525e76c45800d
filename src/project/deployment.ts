import type { ExtractionLimits } from '../core/archive/policy.ts'
import type { SourcedPart } from '../core/content/manifest.ts'
import type { Transitions } from '../core/state-machine.ts'
import type { SignerKey } from '../core/trust/signature.ts'
import type { NamedTree } from '../install/files/extracted-tree.ts'
import type { SourcePast, SourceRecord } from '../install/host/rows.ts'
import type { Links, Started, Subject } from '../install/run/contract.ts'
import type { DeploymentTools } from '../install/run/deployment.ts'
import type { HostRequest } from '../install/transaction/record.ts'
import { createProjectClient, createProjectSender, type ProjectClient } from './hub.ts'

interface ProjectLinks extends Links {
  readonly client: ProjectClient
  readonly supplier: PartSupplier
}

export type ProjectDeployment = Started<ProjectRequest, ProjectState, ProjectLinks>

export interface ProjectTools extends DeploymentTools {
  readonly supplier: PartSupplier
}

/** The part of the project contract that a refused run needs, too. */
export const PROJECT: Subject<ProjectRequest> = {
  named: ({ projectId, version }) => ({
    contract: 'project',
    kind: null,
    slug: projectId ?? null,
    id: null,
    requested_version: version ?? null,
  }),
  sender({ hubUrl, devkey, projectId }, { wires: { reportWire }, secrets }) {
    if (hubUrl === undefined || devkey === undefined || projectId === undefined) return undefined
    const access = { hubUrl, devkey, projectId, secrets }
    return createProjectSender(createProjectClient({ wire: reportWire, reportWire }, access), access)
  },
  /** The project action refuses `dry-run: true`. An operator who sets it expects that nothing changes. */
  isRehearsal: ({ dryRun }) => dryRun,
}

/** The report uses the run's client, which has already logged in. */
export function connect(request: ProjectRequest, { wires, secrets, supplier }: ProjectTools): ProjectLinks {
  const client = createProjectClient(wires, { ...request, secrets })
  return { client, supplier, sender: createProjectSender(client, request) }
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

/** A part to fetch, with the folder for it and the history of its place. */
interface WantedPart {
  readonly part: SourcedPart
  /** A private folder, empty at first. The supplier puts the part's tree into it. */
  readonly folder: string
  readonly past: SourcePast
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
