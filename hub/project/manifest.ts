import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { HubError } from '../errors.ts'
import type { Member } from './member.ts'
import { type PluginDescription, parsePluginDescription } from './plugin-description.ts'
import type { SourceTree } from './source-tree.ts'
import { treeDigest } from './tree-digest.ts'

export const DEFAULT_PLUGINS_DIRNAME = 'plugins'

export interface ManifestFacts {
  readonly projectId: string
  readonly projectName: string
  readonly version: string
  readonly builtAt: Date
  readonly pluginsDirname: string
}

/** The project's `manifest.json` (docs/contracts.md), with its field names. */
export interface Manifest {
  readonly format_version: '1'
  readonly project_id: string
  readonly project_name: string
  readonly version: string
  readonly built_at: string
  readonly plugins_dirname?: string
  readonly plugins: (PluginDescription & { id: string; sha256: string })[]
  readonly extensions: { id: string; sha256: string }[]
  readonly content_sha256: string
}

/** Throws HubError 400 when a plugin has no `plugin.yaml`, or its `plugin.yaml` has no version. */
export function buildManifest(tree: SourceTree, facts: ManifestFacts): Manifest {
  const { projectId, projectName, version, builtAt, pluginsDirname } = facts
  return {
    format_version: '1',
    project_id: projectId,
    project_name: projectName,
    version,
    built_at: builtAt.toISOString().replace(/\.\d+Z$/, 'Z'),
    ...(pluginsDirname === DEFAULT_PLUGINS_DIRNAME ? {} : { plugins_dirname: pluginsDirname }),
    plugins: tree.plugins.map(path => ({ ...identify(tree.members, path), ...readDescription(tree.members, path) })),
    extensions: tree.extensions.map(path => identify(tree.members, path)),
    content_sha256: treeDigest(tree.members, ''),
  }
}

function identify(members: ReadonlyMap<string, Member>, path: string): { id: string; sha256: string } {
  return { id: basename(path), sha256: treeDigest(members, path) }
}

function readDescription(members: ReadonlyMap<string, Member>, path: string): PluginDescription {
  const file = members.get(`${path}/plugin.yaml`)
  if (file?.type !== 'file') throw new HubError(400, `The plugin ${path} has no plugin.yaml: add one.`)
  return parsePluginDescription(readFileSync(file.source, 'utf8'), file.path)
}
