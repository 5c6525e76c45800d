import type { Log } from '../../core/log.ts'
import type { HostConfig } from '../../core/plan/host-config.ts'
import type { InstalledRow } from '../host/installed.ts'
import type { Layout, Place, Shelf } from '../host/layout.ts'
import type { PreviousInstall } from '../host/previous-install.ts'
import type { TreeRecord } from '../host/tree-record.ts'
import type { DeploymentFacts } from '../transaction/facts.ts'
import type { Transaction } from '../transaction/transaction.ts'

/** One plugin or extension that a deployment brings, complete in the staging folder. */
export interface NewThing {
  readonly shelf: Shelf
  readonly id: string
  readonly version: string
  readonly artifactSha256: string
  /** The folder that holds the new tree. */
  readonly staged: string
  /** May be computed when it is first asked for, best while something else is waited for. */
  readonly record: TreeRecord
  readonly environment: { required: readonly string[]; optional: readonly string[] }
  readonly previous: PreviousInstall
  /** The snapshot that holds what belongs to the host, of a thing that was taken away and comes back; absolute. */
  readonly leftBehind?: string | undefined
}

/** One plugin or extension that this host has. */
export interface InstalledThing extends Place {
  readonly installed: InstalledRow
}

/** What the steps of a plan work with. */
export interface StepContext {
  readonly layout: Layout
  readonly transaction: Transaction
  readonly log: Log
  readonly signal: AbortSignal
  readonly facts: DeploymentFacts
  readonly hostConfig: HostConfig | undefined
  /** Ids of the steps that `supervisor: none` leaves out. */
  readonly skipped: ReadonlySet<string>
  readonly keepPaths: readonly string[]
  /** The step's own environment. */
  readonly variables: Readonly<Record<string, string | undefined>>
  readonly stagingFolder: string
  readonly things: readonly NewThing[]
  /** What the new version does not bring: taken away before the plan's steps. */
  readonly oldThings: readonly InstalledThing[]
  /** Under which names replaced and removed trees were put aside, by `<shelf>/<id>`. */
  readonly replaced: Map<string, string>
}
