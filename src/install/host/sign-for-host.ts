import { hash } from 'node:crypto'
import { join } from 'node:path'
import type { Log } from '../../core/log.ts'
import { inTreeOrder } from '../../core/trust/tree-digest.ts'
import { writeNewFile } from '../files/durable-files.ts'
import type { ExtractedFiles, ExtractedTree } from '../files/trees/extracted-tree.ts'
import { removeTree } from '../files/trees/remove-tree.ts'
import { pathExistsSync } from '../files/trees/tree-walk.ts'
import { buildPluginSig, isCovered, needsPluginSig, type StagedPlugin } from './plugin-sig.ts'
import type { FindRecorded } from './trees/record/read-tree-record.ts'

export interface PluginToSign extends StagedPlugin {
  tree: Pick<ExtractedTree<ExtractedFiles>, 'files' | 'symlinks'>
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
  await removeTree(join(staged, 'plugin.sig'))
  await writeNewFile(join(staged, 'plugin.sig'), text, 0o644)
  const isOther = ({ path }: { path: string }): boolean => path !== 'plugin.sig' && !path.startsWith('plugin.sig/')
  const sha256 = hash('sha256', text)
  const signature = { path: 'plugin.sig', size: Buffer.byteLength(text), mode: 0o644 as const, sha256 }
  return {
    files: inTreeOrder([...[...tree.files].filter(isOther), signature]),
    symlinks: tree.symlinks.filter(isOther),
  }
}

/** An installed plugin, and access to the record of its files. */
export type InstalledPlugin = Pick<PluginToSign, 'id' | 'installed' | 'pluginYaml' | 'keepPaths' | 'log'> & {
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
  const kept = keepPaths.filter(path => isCovered(path, pluginYaml)).filter(isPresent)
  if (kept.length === 0) return
  log.warning(
    `The plugin.sig of ${id} covers kept paths (${kept.join(', ')}), whose files belong to this host. If those files differ from the artifact's, the host framework rejects the signature. Keep that data elsewhere, or ask the publisher to move entry_point to a separate directory.`,
  )
}
