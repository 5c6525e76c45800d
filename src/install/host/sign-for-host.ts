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
  /** The directory that the plugin replaces, or whose kept paths it takes. */
  installed: string
  keepPaths: readonly string[]
  log: Log
}

/**
 * Writes `plugin.sig` into a staged plugin that needs one, replacing any that it shipped; returns the tree with it.
 * Without a secret, it only warns. Also warns of kept paths that the signature covers, because they contain the host's
 * own files. Throws ArtifactError `not_a_plugin` if the entry point is not a path inside the plugin.
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

/** An installed plugin with the files that were recorded. */
export type InstalledPlugin = Pick<PluginToSign, 'id' | 'installed' | 'pluginYaml' | 'keepPaths' | 'log'> & {
  /** Finds the record of one of its files. */
  readonly find: FindRecorded
}

/**
 * True if `signForHost` would give an installed plugin the `plugin.sig` that it has; then logs the same warnings. Also
 * false if that cannot be known without the artifact.
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
    `plugins/${id} has execution_mode ${pluginYaml.executionMode} but is not signed for this host, because plugin-secret-key is not set. A host framework that checks plugin.sig will not load it: set the input to that framework's secret.`,
  )
}

/** The host framework hashes the files that it finds when it loads the plugin, the host's own included. */
function warnOfKept({ staged, installed, pluginYaml, keepPaths, log }: Omit<PluginToSign, 'tree'>): void {
  const isPresent = (path: string): boolean =>
    pathExistsSync(join(installed, path)) || pathExistsSync(join(staged, path))
  const kept = keepPaths.filter(path => isCovered(path, pluginYaml)).filter(isPresent)
  if (kept.length === 0) return
  log.warning(
    `plugin.sig covers ${kept.join(', ')} of keep-paths, whose files belong to this host. If they differ from the artifact's, the host framework rejects the signature. Keep that data elsewhere, or ask the publisher to move entry_point to a separate directory.`,
  )
}
