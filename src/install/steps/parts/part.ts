import type { PluginYaml } from '../../../core/content/plugin-yaml.ts'
import type { ExtractedFiles, ExtractedTree } from '../../files/trees/extracted-tree.ts'
import type { InstalledRow, InstalledVersion, SnapshotRow, SourceRecord } from '../../host/installed/rows.ts'
import { type Place, placeName } from '../../host/layout.ts'
import type { PreviousInstall } from '../../host/previous-install.ts'
import type { TreeIdentity } from '../../host/trees/record/tree-identity.ts'

/** The contents of a tree. */
export type PartTree = Pick<ExtractedTree<ExtractedFiles>, 'files' | 'symlinks'>

/** The settings that a part reads, by name. */
export interface PartEnvironment {
  readonly required: readonly string[]
  readonly optional: readonly string[]
  /** Whether the host framework gives the part only the settings in `.env`, in the part's own directory. */
  readonly injectsEnv?: boolean
}

/** Returns the settings that a plugin reads according to its plugin.yaml; none for a part without a plugin.yaml. */
export function environmentOf(pluginYaml: PluginYaml | undefined): PartEnvironment {
  if (pluginYaml === undefined) return { required: [], optional: [] }
  return pluginYaml.injectsEnv ? { ...pluginYaml.environment, injectsEnv: true } : pluginYaml.environment
}

/** A part, in the place that it will have. */
interface AnyPart extends Place {
  readonly version: string
  /** Null if unknown. */
  readonly artifactSha256: string | null
  readonly environment: PartEnvironment
  /** The source of the part's files, if the artifact only names a source and does not contain them. */
  readonly source?: SourceRecord | undefined
  /** The previous installation, which may be in another directory. */
  readonly previous: PreviousInstall
  /** For a removed part that is installed again: the absolute path of the snapshot with the host's own files. */
  readonly leftBehind?: string | undefined
  /** For a version that a rollback restores: its entry in `installed.json`. */
  readonly returning?: ReturningVersion
}

/** A version as `installed.json` records it; `modified` if its files had been changed on this host. */
export type ReturningVersion = InstalledVersion & Pick<SnapshotRow, 'modified'>

/** A part that is verified and complete in the staging folder. */
export interface NewPart extends AnyPart {
  /** The folder that contains the new tree. */
  readonly staged: string
  readonly tree: PartTree
  readonly recorded?: undefined
  readonly retained?: undefined
  readonly intact?: undefined
}

/** A part whose tree is a snapshot on this host. */
export interface RetainedPart extends AnyPart {
  readonly retained: SnapshotRow
  readonly returning: ReturningVersion
  /** The paths that the snapshot's record leaves out. */
  readonly keepPaths: readonly string[]
  readonly intact?: undefined
}

/**
 * A part whose tree was a snapshot and now waits in the staging folder. Every byte of the tree is durable and recorded.
 */
export interface ReturningPart extends Omit<RetainedPart, 'retained'> {
  readonly staged: string
  readonly recorded: TreeIdentity
  /** The kept paths of which the snapshot had a copy in addition to the host's current one. */
  readonly replaced: readonly string[]
}

/** A part whose files are already installed, with none missing or changed. It stays in its place. */
export interface IntactPart extends AnyPart {
  readonly intact: TreeIdentity
  readonly retained?: undefined
}

/** One plugin or extension that a deployment installs. */
export type Part = NewPart | RetainedPart | IntactPart

/** Finds the part with this name, `<shelf>/<id>`. */
export function findPart(parts: readonly Part[], name: string): Part | undefined {
  return parts.find(part => placeName(part) === name)
}

/** A plugin or extension that this host has. */
export interface InstalledPart extends Place {
  readonly installed: InstalledRow
}
