import type { ExtractionLimits } from '../core/archive/archive-limits.ts'
import type { SourceFile } from '../core/document/source-file.ts'
import type { Kind } from '../core/identifiers.ts'
import type { HostRequest } from '../install/transaction/context.ts'
import type { HubBases } from './api/hub-bases.ts'

/** Everything that the operator asks for; parsed, and independent of where it was read. */
export interface DeployRequest extends HostRequest {
  bases: HubBases
  slug: string
  /** Undefined where the host's own file says it. */
  pluginsDirectory: string | undefined
  kind: Kind
  /** A version, or `latest`. */
  version: string
  apiKey: string
  signingSecret: string
  /** Undefined where the default plan is meant. */
  plan: SourceFile | undefined
  hostConfig: SourceFile | undefined
  pluginSecretKey: string | undefined
  artifactSha256: string | undefined
  allowDowngrade: boolean
  dryRun: boolean
  /** Only checks the health of what is installed: a named version with pinned bytes. */
  checkOnly: boolean
  downloadTimeoutMs: number
  maxArtifactBytes: number
  extraction: ExtractionLimits
}

/** A request of which some inputs are missing or malformed. */
export type IncompleteRequest = { [K in keyof DeployRequest]: DeployRequest[K] | undefined }
