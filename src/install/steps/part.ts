import type { ExtractedTree } from '../files/extracted-tree.ts'
import type { InstalledRow } from '../host/installed.ts'
import type { Place } from '../host/layout.ts'
import type { PreviousInstall } from '../host/previous-install.ts'

/** What a tree contains. */
export type PartTree = Pick<ExtractedTree, 'files' | 'symlinks'>

/** The settings that a part reads, by name. */
export interface PartEnvironment {
  readonly required: readonly string[]
  readonly optional: readonly string[]
}

/** One plugin or extension that a deployment installs: verified, and complete in the staging folder. */
export interface Part extends Place {
  readonly version: string
  readonly artifactSha256: string
  /** The folder that contains the new tree. */
  readonly staged: string
  readonly tree: PartTree
  readonly environment: PartEnvironment
  readonly previous: PreviousInstall
  /** For a part that was removed and comes back: the snapshot that contains the host's own files; absolute. */
  readonly leftBehind?: string | undefined
}

/** One plugin or extension that this host has. */
export interface InstalledPart extends Place {
  readonly installed: InstalledRow
}
