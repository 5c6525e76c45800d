import type { ExtractionLimits } from '../core/archive-limits.ts'
import type { Kind } from '../core/identifiers.ts'
import type { Log } from '../core/log.ts'
import type { RunFacts } from '../install/deployment-facts.ts'
import type { LocalReport } from '../install/local-report.ts'
import type { Wire } from '../net/wire.ts'
import type { HubBases } from './client.ts'

/** An operator's file as it was read: its path as the operator wrote it, for messages, and its text. */
export interface SourceFile {
  path: string
  text: string
}

/** Everything that the operator asks for; parsed, and independent of where it was read. */
export interface DeployRequest {
  bases: HubBases
  slug: string
  kind: Kind
  /** A version, or `latest`. */
  version: string
  apiKey: string
  signingSecret: string
  plan: SourceFile
  hostConfig: SourceFile | undefined
  projectRoot: string
  hostId: string
  pluginSecretKey: string | undefined
  artifactSha256: string | undefined
  allowDowngrade: boolean
  dryRun: boolean
  keepSnapshots: number
  lockTimeoutMs: number
  downloadTimeoutMs: number
  keepPaths: readonly string[]
  maxArtifactBytes: number
  extraction: ExtractionLimits
}

/** A request of which some inputs are missing or malformed. */
export type IncompleteRequest = { [K in keyof DeployRequest]: DeployRequest[K] | undefined }

/** What varies around a deployment. */
export interface DeployTools {
  /** Cancelled by `signal`. */
  wire: Wire
  /** For what must be said also after a cancel: bounded by its own time-outs. */
  reportWire: Wire
  log: Log
  signal: AbortSignal
  now: () => Date
  redact: (text: string) => string
  run: RunFacts
  deploymentId: string
  /** Where the download's private file is made. */
  temporaryFolder: string
  /** The step's own environment, which write_env may take settings from. */
  variables: Readonly<Record<string, string | undefined>>
  /** Called once the host is ours, so that a run that is killed from now on has said so. */
  onLocked(report: LocalReport): void
}

export interface DeployResult {
  report: LocalReport
  /** Undefined when no local report could be written, or none is due (dry run). */
  reportPath: string | undefined
  installPath: string | undefined
  /** What failed, as it was thrown. */
  error: Error | undefined
  /** In the order of their running; empty when the plan was refused. */
  plannedSteps: readonly { id: string; action: string }[]
}
