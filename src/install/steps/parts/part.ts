import type { PluginYaml } from '../../../core/content/plugin-yaml.ts'
import type { ExtractedFiles, ExtractedTree } from '../../files/trees/extracted-tree.ts'
import type { InstalledRow, InstalledVersion, SnapshotRow, SourceRecord } from '../../host/installed/rows.ts'
import { type Place, placeName } from '../../host/layout.ts'
import type { PreviousInstall } from '../../host/previous-install.ts'
import type { TreeIdentity } from '../../host/trees/record/tree-identity.ts'

/** What a tree contains. */
export type PartTree = Pick<ExtractedTree<ExtractedFiles>, 'files' | 'symlinks'>

/** The settings that a part reads, by name. */
export interface PartEnvironment {
  readonly required: readonly string[]
  readonly optional: readonly string[]
  /** Whether the host framework gives it the settings in its own directory, `.env`, and no others. */
  readonly injectsEnv?: boolean
}

/** What a plugin reads by its own description; nothing for a part without one. */
export function environmentOf(pluginYaml: PluginYaml | undefined): PartEnvironment {
  if (pluginYaml === undefined) return { required: [], optional: [] }
  return pluginYaml.injectsEnv ? { ...pluginYaml.environment, injectsEnv: true } : pluginYaml.environment
}

/** In the place that it is going to have. */
interface AnyPart extends Place {
  readonly version: string
  /** Null where none is known. */
  readonly artifactSha256: string | null
  readonly environment: PartEnvironment
  /** Where its files come from, if the artifact only names them. */
  readonly source?: SourceRecord | undefined
  /** What is known of it, and where it is installed now, which may be in another directory. */
  readonly previous: PreviousInstall
  /** For a part that was removed and comes back: the snapshot that contains the host's own files; absolute. */
  readonly leftBehind?: string | undefined
  /** For a version that returns: what `installed.json` said of it. */
  readonly returning?: ReturningVersion
}

/** A version as `installed.json` knew it; `modified` if its files had been changed on this host. */
export type ReturningVersion = InstalledVersion & Pick<SnapshotRow, 'modified'>

/** A part that is verified, and complete in the staging folder. */
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
  /** The paths that do not belong to its record. */
  readonly keepPaths: readonly string[]
  readonly intact?: undefined
}

/** A part whose tree was a snapshot, and waits in the staging folder. Every byte of it is durable, and recorded. */
export interface ReturningPart extends Omit<RetainedPart, 'retained'> {
  readonly staged: string
  readonly recorded: TreeIdentity
  /** Kept paths that the snapshot has contained, and the installed version has too. */
  readonly replaced: readonly string[]
}

/** A part that is installed already, with these files and none missing or changed: it stays in its place. */
export interface IntactPart extends AnyPart {
  readonly intact: TreeIdentity
  readonly retained?: undefined
}

/** One plugin or extension that a deployment installs. */
export type Part = NewPart | RetainedPart | IntactPart

/** The part with this name, `<shelf>/<id>`. */
export function findPart(parts: readonly Part[], name: string): Part | undefined {
  return parts.find(part => placeName(part) === name)
}

/** One plugin or extension that this host has. */
export interface InstalledPart extends Place {
  readonly installed: InstalledRow
}
