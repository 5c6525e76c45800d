import type { SourcedPart } from '../../core/content/manifest.ts'
import type { NamedTree } from '../../install/files/trees/tree-below.ts'
import type { SourceRecord } from '../../install/host/installed/rows.ts'

/** A part to fetch. */
export interface WantedPart {
  readonly part: SourcedPart
  /** Private and empty; contains the tree in the end. */
  readonly folder: string
  readonly past: PartPast
}

/** What this host knows of a part's place. */
export interface PartPast {
  /** What is in it now; undefined where this project has not installed it from a source. */
  readonly installed: SuppliedVersion | undefined
  /** What this project has had there from any source, as far as it is installed or retained. */
  readonly history: readonly SuppliedVersion[]
  /** Whether this host has had just that for this project, by its records and audit log, and replaced it. */
  wasReplaced(source: SourceRecord): boolean
}

/** What a source once supplied. */
export interface SuppliedVersion {
  readonly version: string | null
  readonly source: SourceRecord
}

/** A part's tree as its source supplied it, verified by that source's own rules. */
export interface FetchedPart {
  /** The folder that contains it. */
  readonly staged: string
  readonly tree: NamedTree
  /** The version that the source says it is; undefined where only its plugin.yaml or the manifest may know. */
  readonly version: string | undefined
  /** What the host's record says of it. */
  readonly source: SourceRecord
}

/**
 * Supplies the parts that a project names but does not contain. The project contract knows no other contract: what
 * fetches from a marketplace or from git is given to it.
 */
export interface PartSupplier {
  /** Throws ConfigError `missing_input` with every input that these parts need and the operator left out. */
  requireInputs(parts: readonly SourcedPart[]): void
  /** Fetches and verifies one part; changes nothing but its folder. */
  fetch(wanted: WantedPart): Promise<FetchedPart>
}
