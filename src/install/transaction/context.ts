import type { SourceFile } from '../../core/document/source-file.ts'
import type { Log } from '../../core/log.ts'
import type { Settings } from '../../core/plan/settings.ts'
import type { Layout } from '../host/layout.ts'
import type { DriftCheck } from '../host/trees/drift-check.ts'
import type { WorkflowRun } from './facts.ts'
import type { DeploymentRecord } from './record.ts'

/** The operator's request to a host, whatever the contract. */
export interface HostRequest {
  projectRoot: string
  /** Whether to accept a project root that other users own or can write to. */
  allowSharedRoot: boolean
  hostId: string
  /** Undefined if the operator names none. */
  hostConfig: SourceFile | undefined
  keepSnapshots: number
  keepReports: number
  lockTimeoutMs: number
  keepPaths: readonly string[]
  /** Whether the run may replace parts that another plugin, service or project installed. */
  allowTakeover: boolean
  /** Whether all steps run even if nothing changes for them. */
  redeploy: boolean
  /** Values for the settings files that `write_env` creates. */
  settings: Settings
}

/** Keeps secrets out of the texts that a run writes. */
export interface SecretKeeper {
  /** Returns the text with every known secret replaced by `***`. */
  redact(text: string): string
  /** Masks a secret that the run has just learned from a hub. */
  hide(secret: string): void
  /**
   * Keeps every text in these facts readable: a hub's secret or a setting's value that is part of such a text is not
   * redacted anywhere. The secrets among the inputs are redacted even then.
   */
  know(facts: unknown): void
}

/** Redacts the texts that a run writes. */
export type Redaction = Pick<SecretKeeper, 'redact'>

/** The facts that the runner gave the deployment's process. */
export interface RunnerFacts {
  readonly workflow: WorkflowRun
  /** The folder for private files of one run. */
  readonly temporaryFolder: string
}

/** The tools that a deployment works with. */
export interface Tools {
  readonly log: Log
  /** Aborted when the run is cancelled. */
  readonly signal: AbortSignal
  readonly now: () => Date
  readonly secrets: SecretKeeper
  readonly runner: RunnerFacts
  /** A UUID. */
  readonly deploymentId: string
}

/** One deployment: its request, its tools, its host, and the facts known so far. */
export interface Deployment {
  readonly request: HostRequest
  readonly tools: Tools
  readonly layout: Layout
  readonly record: DeploymentRecord
  /** Paths that belong to the host, relative to an install path. */
  readonly keepPaths: readonly string[]
  /** Compares the installed trees with their records. */
  readonly drift: DriftCheck
}
