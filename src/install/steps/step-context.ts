import type { HostConfig } from '../../core/plan/host-config.ts'
import type { PlanStep } from '../../core/plan/plan-step.ts'
import type { InstalledRow } from '../host/installed/rows.ts'
import type { TreeIdentity } from '../host/trees/record/tree-identity.ts'
import type { Deployment } from '../transaction/context.ts'
import type { Transaction } from '../transaction/transaction.ts'
import type { InstalledPart, Part } from './parts/part.ts'

/** A plan that fits this host, with all parts that the plan installs. */
export interface InstallOrder {
  /** In the order in which they run. */
  readonly steps: readonly PlanStep[]
  readonly parts: readonly Part[]
  /** The parts that the new version no longer contains. They are removed before the first step. */
  readonly removals: readonly InstalledPart[]
  /** The origin of all parts, as `installed.json` records it. */
  readonly origin: Pick<InstalledRow, 'contract' | 'slug' | 'project_version'>
  /** Whether the replaced versions stay as snapshots after success. */
  readonly snapshot: boolean
  readonly hostConfig: HostConfig | undefined
  /**
   * The ids of the steps that this host skips: the host config says `supervisor: none`, or there is no command for the
   * step's event.
   */
  readonly skipped: ReadonlySet<string>
}

/** The result of the steps for one part. */
export interface PartResult {
  /** The new tree; undefined for a part that was removed. */
  readonly tree?: TreeIdentity
  /** The snapshot to which the replaced or removed tree was moved, if there was one. */
  readonly snapshot?: string | undefined
  /** The identity of the tree in that snapshot, if that tree had been modified on this host. */
  readonly modified?: TreeIdentity | undefined
}

/** The tools and the state that the steps of a plan share. */
export interface StepContext {
  readonly deployment: Deployment
  readonly order: InstallOrder
  readonly transaction: Transaction
  /** The ids of the steps for which nothing changes. */
  readonly idle: ReadonlySet<string>
  /** A private folder of this deployment, on the file system of the project root. */
  readonly stagingFolder: string
  /** The results so far, by the part's name. */
  readonly results: Map<string, PartResult>
}
