import { createHmac, type Hmac, hash } from 'node:crypto'
import { createReadStream, promises, readFileSync, statSync } from 'node:fs'
import { join, posix } from 'node:path'
import { DEFAULT_ENTRY_POINT, type PluginYaml, parsePluginYaml } from '../../core/content/plugin-yaml.ts'
import { ArtifactError, errnoOf } from '../../core/errors.ts'
import { isBelow, PLUGIN_YAML_LIMITS } from '../../core/identifiers.ts'
import type { Log } from '../../core/log.ts'
import { cleanForeignText, listNames } from '../../core/text.ts'
import { comparePaths, inTreeOrder } from '../../core/trust/tree-digest.ts'
import { TreeWriter } from '../archive/writer.ts'
import type { ListedZip } from '../archive/zip-extract.ts'
import { toHostError } from '../files/errors.ts'
import type { ExtractedTree } from '../files/extracted-tree.ts'
import { removeTree } from '../files/remove-tree.ts'
import { withListed } from '../files/spelling.ts'
import { TimeSlice } from '../files/time-slice.ts'
import { pathExistsSync, walkTree } from '../files/walk.ts'
import type { FindRecorded } from '../trees/record.ts'

const SIGNED_MODES: ReadonlySet<string> = new Set(['trusted', 'ephemeral'])
const LEFT_OUT_PARTS: ReadonlySet<string> = new Set([
  '__pycache__',
  '.git',
  '.mypy_cache',
  '.pytest_cache',
  'plugin.sig',
  'plugin.yaml',
  'plugin.json',
  // Literal names, not patterns: the host framework compares them as text, so x.md and y.json are signed.
  '*.md',
  '*.json',
])
const LEFT_OUT_SUFFIXES = ['.pyc', '.pyo']

/** A plugin to sign, usually in the staging folder. */
interface StagedPlugin {
  id: string
  /** The plugin's folder. */
  staged: string
  pluginYaml: PluginYaml
}

/** True if the host framework expects a `plugin.sig` in this plugin. */
export function needsPluginSig(plugin: PluginYaml): boolean {
  return SIGNED_MODES.has(plugin.executionMode?.toLowerCase() ?? '')
}

/**
 * Builds the text of a plugin's `plugin.sig` (docs/files.md, "plugin.sig"), with an HMAC-SHA256 under the host's
 * secret. The HMAC covers `plugin.yaml`, then each of the `signedFiles` in order, as path, zero byte, bytes, zero byte.
 *
 * Throws file system errors, and ArtifactError `not_a_plugin` if the entry point is not a path inside the plugin.
 */
export async function buildPluginSig({ id, staged, pluginYaml }: StagedPlugin, secret: string): Promise<string> {
  const hmac = createHmac('sha256', Buffer.from(secret, 'utf8'))
  hmac.update(await promises.readFile(join(staged, 'plugin.yaml')))
  for (const path of await signedFiles(staged, pluginYaml)) await addFile(hmac, staged, path)
  const signature = {
    plugin: pluginYaml.name ?? id,
    version: pluginYaml.version ?? '0.0.0',
    digest: hmac.digest('hex'),
    algo: 'HMAC-SHA256',
  }
  return escapeNonAscii(JSON.stringify(signature, null, 2))
}

/**
 * True if a plugin's signature may cover a path or a file below that path. Throws ArtifactError `not_a_plugin` as
 * `buildPluginSig` does.
 */
export function isCovered(path: string, plugin: PluginYaml): boolean {
  const directory = entryDirectory(plugin)
  const isInside = directory === '.' || `${path}/`.startsWith(`${directory}/`)
  return (isInside || directory.startsWith(`${path}/`)) && isSigned(path)
}

function entryDirectory(plugin: PluginYaml): string {
  const entryPoint = plugin.entryPoint ?? DEFAULT_ENTRY_POINT
  const normal = posix.normalize(entryPoint)
  if (posix.isAbsolute(entryPoint) || normal.split('/').includes('..') || /[\\\0]/.test(entryPoint)) {
    throw new ArtifactError(
      'not_a_plugin',
      `The entry_point in plugin.yaml must be a relative path inside the plugin, without backslashes or NUL, but found "${cleanForeignText(entryPoint)}", so the artifact was refused. The publisher must correct the entry_point.`,
    )
  }
  return posix.dirname(normal)
}

/**
 * Returns, in order, the paths of the regular files that the signature of the plugin in `root` covers. All of them are
 * below the entry point's directory.
 */
export async function signedFiles(root: string, plugin: PluginYaml): Promise<string[]> {
  const directory = entryDirectory(plugin)
  const base = directory === '.' ? '' : directory
  const entries = await walkTree(join(root, base))
  return entries
    .filter(entry => entry.type === 'file')
    .map(entry => posix.join(base, entry.path))
    .filter(isSigned)
    .sort(comparePaths)
}

function isSigned(path: string): boolean {
  return (
    !path.split('/').some(part => LEFT_OUT_PARTS.has(part)) && !LEFT_OUT_SUFFIXES.some(suffix => path.endsWith(suffix))
  )
}

async function addFile(hmac: Hmac, root: string, path: string): Promise<void> {
  hmac.update(`${path}\0`, 'utf8')
  for await (const chunk of createReadStream(join(root, path))) hmac.update(chunk as Buffer)
  hmac.update('\0')
}

function escapeNonAscii(json: string): string {
  return json.replace(/[^\x20-\x7e\n]/g, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

interface PluginToSign extends StagedPlugin {
  tree: Pick<ExtractedTree, 'files' | 'symlinks'>
  /** The directory that the plugin replaces, or whose kept paths the plugin takes. */
  installed: string
  keepPaths: readonly string[]
  log: Log
}

/**
 * Writes `plugin.sig` into a staged plugin that needs one, replacing any that the artifact shipped. Returns the tree
 * with that file. Without a secret, only logs a warning. Also warns about kept paths that the signature covers, because
 * their files belong to the host. Throws ArtifactError `not_a_plugin` if the entry point is not a path inside the
 * plugin.
 */
export async function signForHost(plugin: PluginToSign, secret: string | undefined): Promise<PluginToSign['tree']> {
  const { staged, tree, pluginYaml } = plugin
  if (!needsPluginSig(pluginYaml)) return tree
  if (secret === undefined) {
    warnOfUnsigned(plugin)
    return tree
  }
  warnOfKept(plugin)
  const text = await buildPluginSig(plugin, secret)
  const isShipped = isBelow(withListed(staged, ['plugin.sig']))
  const isOther = ({ path }: { path: string }): boolean => !isShipped(path)
  await removeTree(join(staged, 'plugin.sig'))
  const signature = new TreeWriter(staged, new TimeSlice()).writeFile(
    { path: 'plugin.sig', mode: 0o644 },
    Buffer.from(text),
  )
  return {
    files: inTreeOrder([...tree.files.filter(isOther), signature]),
    symlinks: tree.symlinks.filter(isOther),
  }
}

/** An installed plugin, and access to the record of its files. */
type InstalledPlugin = Pick<PluginToSign, 'id' | 'installed' | 'pluginYaml' | 'keepPaths' | 'log'> & {
  /** Finds the record of one of the plugin's files. */
  readonly find: FindRecorded
}

/**
 * True if `signForHost` would leave the `plugin.sig` of an installed plugin, or the lack of one, unchanged. In that
 * case, logs the same warnings as `signForHost`. False if only the artifact could show whether `signForHost` would
 * change the file.
 */
export async function isSignedForHost(plugin: InstalledPlugin, secret: string | undefined): Promise<boolean> {
  const { installed, pluginYaml, find } = plugin
  if (!needsPluginSig(pluginYaml)) return true
  const sha256 = find('plugin.sig')?.sha256
  if (secret === undefined) {
    if (sha256 === undefined) warnOfUnsigned(plugin)
    return sha256 === undefined
  }
  const text = await buildPluginSig({ ...plugin, staged: installed }, secret)
  const isAlike = sha256 === hash('sha256', text)
  if (isAlike) warnOfKept({ ...plugin, staged: installed })
  return isAlike
}

function warnOfUnsigned({ id, pluginYaml, log }: Pick<PluginToSign, 'id' | 'pluginYaml' | 'log'>): void {
  log.warning(
    `The plugin ${id} has execution_mode ${pluginYaml.executionMode} but is not signed for this host, because plugin-secret-key is not set. A host framework that checks plugin.sig will not load the plugin. Set plugin-secret-key to that framework's secret.`,
  )
}

/** The host framework hashes the files that it finds when it loads the plugin, including the host's own files. */
function warnOfKept({ id, staged, installed, pluginYaml, keepPaths, log }: Omit<PluginToSign, 'tree'>): void {
  const isPresent = (path: string): boolean =>
    pathExistsSync(join(installed, path)) || pathExistsSync(join(staged, path))
  const kept = withListed(staged, keepPaths)
    .filter(path => isCovered(path, pluginYaml))
    .filter(isPresent)
  if (kept.length === 0) return
  log.warning(
    `The plugin.sig of ${id} covers kept paths (${kept.join(', ')}), whose files belong to this host. If those files differ from the artifact's, the host framework rejects the signature. Keep that data elsewhere, or ask the publisher to move entry_point to a separate directory.`,
  )
}

const NONE = 'no plugin.yaml file at its root'
const NO_FILE = 'a plugin.yaml that is not a file'

/**
 * Reads `plugin.yaml` at the root of a plugin's tree. Throws ArtifactError `not_a_plugin` if there is no such file or
 * if it is not a regular file, and `invalid_manifest` if it is too large. Throws the system's error as DeploymentError.
 */
export function readPluginYaml(staged: string): PluginYaml {
  const path = join(staged, 'plugin.yaml')
  try {
    const found = statSync(path)
    if (!found.isFile()) throw notAPlugin(NO_FILE)
    if (found.size > PLUGIN_YAML_LIMITS.bytes) throw tooLarge(found.size)
    return parsePluginYaml(readFileSync(path, 'utf8'))
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') throw notAPlugin(NONE)
    throw toHostError(error, `reading ${path}`)
  }
}

/** Reads the same file as `readPluginYaml` from a plugin that is still packed, and throws the same ArtifactErrors. */
export function readPackedPluginYaml({ plan, read }: ListedZip): PluginYaml {
  const isNamed = ({ path }: { path: string }): boolean => path === 'plugin.yaml'
  const link = plan.symlinks.find(isNamed)
  const file = plan.files.find(({ path }) => path === (link === undefined ? 'plugin.yaml' : link.file))
  if (file === undefined)
    throw notAPlugin(
      link !== undefined || plan.directories.includes('plugin.yaml') ? NO_FILE : `${NONE}${nestedIn(plan)}`,
    )
  if (file.size > PLUGIN_YAML_LIMITS.bytes) throw tooLarge(file.size)
  return parsePluginYaml(read(file).toString('utf8'))
}

/** Names a plugin.yaml one level down, and what is next to its directory and so keeps it there. */
function nestedIn({ files, directories }: ListedZip['plan']): string {
  const nested = files.find(({ path }) => /^[^/]+\/plugin\.yaml$/.test(path))?.path
  if (nested === undefined) return ''
  const tops = new Set([...files.map(({ path }) => path), ...directories].map(path => path.split('/')[0] ?? ''))
  tops.delete(nested.split('/')[0] ?? '')
  return ` (but it has ${cleanForeignText(nested, 100)}, and next to that directory: ${listNames([...tops])}; only a single top-level directory is left out)`
}

function tooLarge(bytes: number): ArtifactError {
  return new ArtifactError(
    'invalid_manifest',
    `The artifact's plugin.yaml must be at most ${PLUGIN_YAML_LIMITS.bytes} bytes, but found ${bytes}, so the artifact was refused. The publisher must shorten plugin.yaml.`,
  )
}

function notAPlugin(found: string): ArtifactError {
  return new ArtifactError(
    'not_a_plugin',
    `The artifact has ${found}, so it is not a plugin and was refused. If it is a service, set kind: service (in a project's source, marketplace_kind: service); otherwise, the publisher must correct plugin.yaml.`,
  )
}
