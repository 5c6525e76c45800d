import type { ExtractedTree } from '../files/extracted-tree.ts'
import type { InstalledRow } from '../host/installed.ts'
import type { Place } from '../host/layout.ts'
import type { PreviousInstall } from '../host/previous-install.ts'
import type { TreeIdentity } from '../host/tree-record.ts'

/** What a tree contains. */
export type PartTree = Pick<ExtractedTree, 'files' | 'symlinks'>

/** The settings that a part reads, by name. */
export interface PartEnvironment {
  readonly required: readonly string[]
  readonly optional: readonly string[]
}

interface AnyPart extends Place {
  readonly version: string
  readonly artifactSha256: string
  readonly environment: PartEnvironment
  readonly previous: PreviousInstall
  /** For a part that was removed and comes back: the snapshot that contains the host's own files; absolute. */
  readonly leftBehind?: string | undefined
}

/** A part that is verified, and complete in the staging folder. */
export interface NewPart extends AnyPart {
  /** The folder that contains the new tree. */
  readonly staged: string
  readonly tree: PartTree
  readonly intact?: undefined
}

/** A part that is installed already, with these files and none missing or changed: it stays in its place. */
export interface IntactPart extends AnyPart {
  readonly intact: TreeIdentity
}

/** One plugin or extension that a deployment installs. */
export type Part = NewPart | IntactPart

/** One plugin or extension that this host has. */
export interface InstalledPart extends Place {
  readonly installed: InstalledRow
}
