import type { SourcedPart } from '../../core/content/manifest.ts'
import type { NamedTree } from '../../install/files/trees/tree-below.ts'
import type { SourceRecord } from '../../install/host/installed/rows.ts'

/** A part to fetch. */
export interface WantedPart {
  readonly part: SourcedPart
  /** Private and empty at first. Contains the tree in the end. */
  readonly folder: string
  readonly past: PartPast
}

/** The history of a part's place on this host. */
export interface PartPast {
  /** The version in it now; undefined if this project has not installed it from a source. */
  readonly installed: SuppliedVersion | undefined
  /** The versions that this project has had there from any source, if they are still installed or retained. */
  readonly history: readonly SuppliedVersion[]
  /**
   * True if this host has had exactly this content for this project and replaced it, according to its records and audit
   * log.
   */
  wasReplaced(source: SourceRecord): boolean
}

/** A version that a source once supplied. */
export interface SuppliedVersion {
  readonly version: string | null
  readonly source: SourceRecord
}

/** A part's tree as its source supplied it, verified by that source's own rules. */
export interface FetchedPart {
  /** The folder that contains it. */
  readonly staged: string
  readonly tree: NamedTree
  /** The version that the source gives; undefined if only its plugin.yaml or the manifest may know it. */
  readonly version: string | undefined
  /** The source, for the host's record. */
  readonly source: SourceRecord
}

/**
 * Supplies the parts that a project names but does not contain. The project contract knows no other contract, so its
 * caller passes in the code that fetches from a marketplace or from git.
 */
export interface PartSupplier {
  /** Throws ConfigError `missing_input` with every input that these parts need and the operator left out. */
  requireInputs(parts: readonly SourcedPart[]): void
  /** Fetches and verifies one part. Changes nothing but its folder. */
  fetch(wanted: WantedPart): Promise<FetchedPart>
}
