import type { SourcedPart } from '../../core/content/manifest.ts'
import type { NamedTree } from '../../install/files/trees/tree-below.ts'
import type { SourceRecord } from '../../install/host/installed/rows.ts'

/** A part to fetch, with the folder for it and the history of its place. */
export interface WantedPart {
  readonly part: SourcedPart
  /** A private folder, empty at first. The supplier puts the part's tree into it. */
  readonly folder: string
  readonly past: PartPast
}

/** The history of a part's place on this host. */
export interface PartPast {
  /** The version that is installed there now; undefined unless this project installed it from a source. */
  readonly installed: SuppliedVersion | undefined
  /** The versions that this project has installed there from any source, and that are still there or retained. */
  readonly history: readonly SuppliedVersion[]
  /**
   * True if this project installed exactly this content on this host and later replaced it, according to the host's
   * records and audit log (`wasSupplyReplaced`).
   */
  wasReplaced(source: SourceRecord): boolean
}

/** A version of a part that was fetched from a source. */
export interface SuppliedVersion {
  readonly version: string | null
  readonly source: SourceRecord
}

/** A part's tree as it was fetched, verified by the rules of its source. */
export interface FetchedPart {
  /** The folder that contains the tree. */
  readonly staged: string
  readonly tree: NamedTree
  /** The version that the source gives; undefined if only the part's plugin.yaml or the manifest may give one. */
  readonly version: string | undefined
  /** The source, for the host's record. */
  readonly source: SourceRecord
}

/**
 * Supplies the parts that a project names but does not contain. This folder imports no other contract's code, so the
 * action passes in the code that fetches from a marketplace or from git.
 */
export interface PartSupplier {
  /**
   * Throws ConfigError `missing_input` if the operator left out inputs that these parts need; the error lists all of
   * them.
   */
  requireInputs(parts: readonly SourcedPart[]): void
  /** Fetches and verifies one part. Writes only to `wanted.folder` and to temporary files. */
  fetch(wanted: WantedPart): Promise<FetchedPart>
}
