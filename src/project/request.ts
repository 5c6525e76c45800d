import type { ExtractionLimits } from '../core/archive/archive-limits.ts'
import type { SourceFile } from '../core/document/source-file.ts'
import type { SignerKey } from '../core/trust/signer-keys.ts'
import type { HostRequest } from '../install/transaction/context.ts'

/** Everything that the operator asks for; parsed, and independent of where it was read. */
export interface ProjectRequest extends HostRequest {
  hubUrl: string
  /** Sent as `xdevkey`. */
  devkey: string
  projectId: string
  /** The ids that its parts may have; undefined where any will do. */
  projectIds: readonly string[] | undefined
  deploymentCredential: string
  /** Pinned; at least one. */
  signerKeys: readonly SignerKey[]
  /** A version, or `latest`. */
  version: string
  hostConfig: SourceFile | undefined
  pluginSecretKey: string | undefined
  artifactSha256: string | undefined
  allowDowngrade: boolean
  downloadTimeoutMs: number
  maxArtifactBytes: number
  extraction: ExtractionLimits
}

/** A request of which some inputs are missing or malformed. */
export type IncompleteProjectRequest = { [K in keyof ProjectRequest]: ProjectRequest[K] | undefined } & {
  /** Whether nothing was to change, which this action cannot do; undefined when that cannot be read. */
  readonly dryRun: boolean | undefined
}
