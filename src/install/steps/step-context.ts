import type { HostConfig } from '../../core/plan/host-config.ts'
import type { PlanStep } from '../../core/plan/plan-step.ts'
import type { InstalledRow } from '../host/installed/rows.ts'
import type { TreeIdentity } from '../host/trees/record/tree-identity.ts'
import type { Deployment } from '../transaction/context.ts'
import type { Transaction } from '../transaction/transaction.ts'
import type { InstalledPart, Part } from './parts/part.ts'

/** A plan that fits this host, and everything that it installs. */
export interface InstallOrder {
  /** In the order in which they run. */
  readonly steps: readonly PlanStep[]
  readonly parts: readonly Part[]
  /** The parts that the new version no longer contains: removed before the first step. */
  readonly removals: readonly InstalledPart[]
  /** What `installed.json` says of all of them. */
  readonly origin: Pick<InstalledRow, 'contract' | 'slug' | 'project_version'>
  /** Whether the replaced versions stay as snapshots after success. */
  readonly snapshot: boolean
  readonly hostConfig: HostConfig | undefined
  /** Ids of the steps that `supervisor: none` in the host config leaves out. */
  readonly skipped: ReadonlySet<string>
}

/** What the steps have done with one part. */
export interface PartResult {
  /** The new tree; undefined for a part that was removed. */
  readonly tree?: TreeIdentity
  /** The snapshot to which the replaced or removed tree was moved, if any. */
  readonly snapshot?: string | undefined
  /** What is in that snapshot, if the tree had been modified on this host. */
  readonly modified?: TreeIdentity | undefined
}

/** What the steps of a plan work with. */
export interface StepContext {
  readonly deployment: Deployment
  readonly order: InstallOrder
  readonly transaction: Transaction
  /** Ids of the steps for which nothing changes. */
  readonly idle: ReadonlySet<string>
  /** A private folder of this deployment, on the file system of the project root. */
  readonly stagingFolder: string
  /** By the part's name. */
  readonly results: Map<string, PartResult>
}
