import type { ExtractionLimits } from '../core/archive/archive-limits.ts'
import type { SignerKey } from '../core/trust/signer-keys.ts'
import type { HostRequest } from '../install/transaction/context.ts'

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
