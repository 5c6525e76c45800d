import { createHmac, type Hmac } from 'node:crypto'
import { createReadStream, promises } from 'node:fs'
import { join, posix } from 'node:path'
import type { PluginYaml } from '../../core/content/plugin-yaml.ts'
import { ArtifactError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { comparePaths } from '../../core/trust/tree-digest.ts'
import { walkTree } from '../files/trees/tree-walk.ts'

const SIGNED_MODES: ReadonlySet<string> = new Set(['trusted', 'ephemeral'])
const DEFAULT_ENTRY_POINT = 'src/main.py'
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
export interface StagedPlugin {
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
  const isBelow = directory === '.' || `${path}/`.startsWith(`${directory}/`)
  return (isBelow || directory.startsWith(`${path}/`)) && isSigned(path)
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
 * below the entry point's directory. Throws as `buildPluginSig` does.
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
