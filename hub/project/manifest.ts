import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { HubError } from '../errors.ts'
import type { Member } from './member.ts'
import { type PluginDescription, parsePluginDescription } from './plugin-description.ts'
import type { SourceTree } from './source-tree.ts'
import type { PartSource, PartSources } from './stubs.ts'
import { treeDigest } from './tree-digest.ts'

export const DEFAULT_PLUGINS_DIRNAME = 'plugins'

type Members = ReadonlyMap<string, Member>

export interface ManifestFacts {
  readonly projectId: string
  readonly projectName: string
  readonly version: string
  readonly builtAt: Date
  readonly pluginsDirname: string
  readonly sources: PartSources
}

/** The project's `manifest.json` (docs/project-contract.md), with its field names. */
export interface Manifest {
  readonly format_version: '1'
  readonly project_id: string
  readonly project_name: string
  readonly version: string
  readonly built_at: string
  readonly plugins_dirname?: string
  readonly plugins: (PluginDescription & PartIdentity)[]
  readonly extensions: PartIdentity[]
  readonly content_sha256: string
}

/** Has either `sha256`, the digest of the sealed files, or `source`. */
type PartIdentity = { id: string; sha256?: string; source?: PartSource }

/** Throws HubError 400 if a plugin without a source has no `plugin.yaml`, and as parsePluginDescription does. */
export function buildManifest(tree: SourceTree, facts: ManifestFacts): Manifest {
  const { projectId, projectName, version, builtAt, pluginsDirname, sources } = facts
  const identify = (path: string): PartIdentity => identityOf(tree.members, path, sources.get(path))
  return {
    format_version: '1',
    project_id: projectId,
    project_name: projectName,
    version,
    built_at: builtAt.toISOString().replace(/\.\d+Z$/, 'Z'),
    ...(pluginsDirname === DEFAULT_PLUGINS_DIRNAME ? {} : { plugins_dirname: pluginsDirname }),
    plugins: tree.plugins.map(path => ({ ...identify(path), ...describe(tree.members, path, sources.get(path)) })),
    extensions: tree.extensions.map(identify),
    content_sha256: treeDigest(tree.members, ''),
  }
}

function identityOf(members: Members, path: string, source: PartSource | undefined): PartIdentity {
  const id = basename(path)
  return source === undefined ? { id, sha256: treeDigest(members, path) } : { id, source }
}

/**
 * A stub need not have a plugin.yaml. Without one, the version is that of the marketplace source, or 0.0.0 for a git
 * source.
 */
function describe(members: Members, path: string, source: PartSource | undefined): PluginDescription {
  if (source === undefined || members.has(`${path}/plugin.yaml`)) return readDescription(members, path)
  return { version: 'marketplace_version' in source ? source.marketplace_version : '0.0.0', environment: undefined }
}

function readDescription(members: Members, path: string): PluginDescription {
  const file = members.get(`${path}/plugin.yaml`)
  if (file === undefined) throw new HubError(400, `The plugin ${path} has no plugin.yaml: add one.`)
  if (file.type !== 'file') throw new HubError(400, `${file.path} is a ${file.type}: replace it with a file.`)
  return parsePluginDescription(readFileSync(file.source, 'utf8'), file.path)
}
