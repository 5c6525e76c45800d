import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { z } from 'zod'
import { HubError } from '../errors.ts'
import { labelSchema, parseInput, versionSchema } from '../names.ts'
import { MAX_PLUGIN_YAML_BYTES, parseYamlDocument, readText, readVersion, requireYamlSize } from '../yaml.ts'
import type { PartSource, PartSources } from './part-sources.ts'
import { DEFAULT_PLUGINS_DIRNAME, type Member, resolveLink, type SourceTree } from './source-tree.ts'

type Members = ReadonlyMap<string, Member>

interface ManifestFacts {
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
 * A stub need not have a plugin.yaml, or a version in it. The version is then that of the marketplace source, or 0.0.0
 * for a git source.
 */
function describe(members: Members, path: string, source: PartSource | undefined): PluginDescription {
  if (source === undefined) return readDescription(members, path)
  const version = 'marketplace_version' in source ? source.marketplace_version : '0.0.0'
  return members.has(`${path}/plugin.yaml`)
    ? readDescription(members, path, version)
    : { version, environment: undefined }
}

function readDescription(members: Members, path: string, otherwise?: string): PluginDescription {
  const file = members.get(`${path}/plugin.yaml`)
  if (file === undefined) throw new HubError(400, `The plugin ${path} has no plugin.yaml: add one.`)
  if (file.type !== 'file') throw new HubError(400, `${file.path} is a ${file.type}: replace it with a file.`)
  return parsePluginDescription(readFileSync(file.source, 'utf8'), file.path, otherwise)
}

const namesSchema = z.preprocess(
  value => (value === '' || value === undefined ? [] : value),
  z.array(labelSchema, { error: 'must be a list of names' }),
)

const environmentSchema = z.object({ required: namesSchema, optional: namesSchema }, { error: 'must be a map' })

const descriptionSchema = z.object({
  version: versionSchema,
  environment: z.preprocess(value => (value === '' ? undefined : value), environmentSchema.optional()),
})

type PluginDescription = z.output<typeof descriptionSchema>

function withVersion(otherwise: string) {
  return descriptionSchema.extend({ version: versionSchema.default(otherwise) })
}

/**
 * Reads the fields of a `plugin.yaml` for the manifest. Throws HubError 400, which names the `path`, for invalid YAML,
 * for a file that is larger than clients accept, for a field that is missing or wrong, and for a name or a version that
 * YAML parsers read differently. `otherwise` is the version if the file names none.
 */
export function parsePluginDescription(text: string, path: string, otherwise?: string): PluginDescription {
  requireYamlSize(path, Buffer.byteLength(text), MAX_PLUGIN_YAML_BYTES)
  const document = parseYamlDocument(text, path)
  const value: unknown = document.toJS({ maxAliasCount: 0 })
  readText(document, ['name'], path)
  readVersion(document, path)
  try {
    return parseInput(otherwise === undefined ? descriptionSchema : withVersion(otherwise), value)
  } catch (error) {
    throw new HubError(400, `${path}: ${error instanceof Error ? error.message : String(error)}`)
  }
}

/**
 * The tree digest of the members below `folder` (docs/files.md, "Tree digest"), with paths relative to `folder`; `''`
 * means the whole tree. A symlink to a regular file counts as that file; other symlinks do not count. The caller must
 * have checked that no symlink leaves its plugin or extension.
 */
function treeDigest(members: ReadonlyMap<string, Member>, folder: string): string {
  const prefix = folder === '' ? '' : `${folder}/`
  const lines = [...members.values()]
    .filter(({ path }) => path.startsWith(prefix))
    .sort((a, b) => comparePaths(a.path, b.path))
    .flatMap(member => {
      const file = member.type === 'symlink' ? resolveLink(members, member, { within: '' }) : member
      return file?.type === 'file' ? [`${member.path.slice(prefix.length)}:${file.sha256}`] : []
    })
  return createHash('sha256').update(lines.join('\n')).digest('hex')
}

/**
 * Orders paths component by component, each by code points. Comparing UTF-8 bytes with a zero byte as separator has
 * that effect, because the zero byte sorts before every other character.
 */
export function comparePaths(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a.replaceAll('/', '\0')), Buffer.from(b.replaceAll('/', '\0')))
}
