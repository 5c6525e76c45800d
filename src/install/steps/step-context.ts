import type { HostConfig } from '../../core/host-config.ts'
import type { Log } from '../../core/log.ts'
import type { DeploymentFacts } from '../deployment-facts.ts'
import type { InstalledRow } from '../installed.ts'
import type { Layout, Shelf } from '../layout.ts'
import type { Transaction } from '../transaction.ts'
import type { TreeRecord } from '../tree-record.ts'

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
  readonly previous: Previous
}

/** What stood in the place before. */
export interface Previous {
  readonly installed: InstalledRow | undefined
  readonly version: string | null
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
  /** Under which names replaced trees were put aside, by `<shelf>/<id>`; filled by the install steps. */
  readonly replaced: Map<string, string>
}

export function placeOf({ shelf, id }: Pick<NewThing, 'shelf' | 'id'>): string {
  return `${shelf}/${id}`
}
