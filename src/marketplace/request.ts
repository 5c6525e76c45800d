import type { ExtractionLimits } from '../core/archive/archive-limits.ts'
import type { SourceFile } from '../core/document/source-file.ts'
import type { Kind } from '../core/identifiers.ts'
import type { HostRequest } from '../install/transaction/context.ts'
import type { HubBases } from './api/hub-bases.ts'

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
