import type { Log } from '../../core/log.ts'
import type { Settings } from '../../core/plan/settings.ts'
import type { Layout } from '../host/layout.ts'
import type { DriftCheck } from '../host/trees/drift-check.ts'
import type { WorkflowRun } from './facts.ts'
import type { DeploymentRecord } from './record.ts'

/** What the operator asks of a host, whatever the contract. */
export interface HostRequest {
  projectRoot: string
  /** Accepts a project root that other users own or can write. */
  allowSharedRoot: boolean
  hostId: string
  keepSnapshots: number
  keepReports: number
  lockTimeoutMs: number
  keepPaths: readonly string[]
  /** Whether it may replace what another plugin, service or project installed. */
  allowTakeover: boolean
  /** Whether all steps run although nothing changes for them. */
  redeploy: boolean
  /** Values for the settings files that `write_env` creates. */
  settings: Settings
}

/** Keeps secrets out of what a run writes. */
export interface SecretKeeper {
  /** The text with every known secret replaced by `***`. */
  redact(text: string): string
  /** Masks a secret that the run has just learned from a hub. */
  hide(secret: string): void
  /**
   * Keeps every text in these facts readable: no secret of a hub, and no value of a setting, is redacted that is part of
   * one.
   */
  know(facts: unknown): void
}

/** What the process that runs a deployment was given. */
export interface RunnerFacts {
  readonly workflow: WorkflowRun
  /** Where private files for one run go. */
  readonly temporaryFolder: string
}

/** What every part of a deployment works with. */
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

/** One deployment: what is asked, what it works with, where, and what is known of it so far. */
export interface Deployment {
  readonly request: HostRequest
  readonly tools: Tools
  readonly layout: Layout
  readonly record: DeploymentRecord
  /** What belongs to the host, by path below an install path. */
  readonly keepPaths: readonly string[]
  /** How the installed files differ from what was installed. */
  readonly drift: DriftCheck
}
