import { createHash } from 'node:crypto'
import { join } from 'node:path'
import type { PluginYaml } from '../../core/content/plugin-yaml.ts'
import type { Log } from '../../core/log.ts'
import { writeNewFile } from '../files/durable-files.ts'
import type { ExtractedTree } from '../files/extracted-tree.ts'
import { removeTree } from '../files/remove-tree.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { buildPluginSig, isCovered, needsPluginSig } from './plugin-sig.ts'

export interface PluginToSign {
  id: string
  /** The folder that holds the plugin. */
  staged: string
  tree: Pick<ExtractedTree, 'files' | 'symlinks'>
  pluginYaml: PluginYaml
  /** The place that the plugin goes to, with what stands there now. */
  installed: string
  keepPaths: readonly string[]
  log: Log
}

/**
 * Puts `plugin.sig` into a staged plugin that needs one, in place of any that it brought; returns what the tree then
 * holds. Without a secret it is left as it is, with a notice. Warns of kept paths that it covers as they are in the artifact, because what stands there is the host's own.
 * Throws ArtifactError `not_a_plugin` when its entry point leaves the plugin.
 */
export async function signForHost(plugin: PluginToSign, secret: string | undefined): Promise<PluginToSign['tree']> {
  const { id, staged, tree, pluginYaml, log } = plugin
  if (!needsPluginSig(pluginYaml)) return tree
  if (secret === undefined) {
    log.notice(
      `plugins/${id} has execution_mode ${pluginYaml.executionMode} and is not signed for this host, because plugin-secret-key is not set: a host framework that checks plugin.sig does not load it.`,
    )
    return tree
  }
  warnOfKept(plugin)
  const text = await buildPluginSig(staged, id, pluginYaml, secret)
  await removeTree(join(staged, 'plugin.sig'))
  await writeNewFile(join(staged, 'plugin.sig'), text, 0o644)
  const isOther = ({ path }: { path: string }): boolean => path !== 'plugin.sig' && !path.startsWith('plugin.sig/')
  const sha256 = createHash('sha256').update(text).digest('hex')
  const signature = { path: 'plugin.sig', size: Buffer.byteLength(text), mode: 0o644 as const, sha256 }
  return { files: [...tree.files.filter(isOther), signature], symlinks: tree.symlinks.filter(isOther) }
}

/** The host framework hashes what it finds when it loads the plugin, so what the host keeps there counts as changed. */
function warnOfKept({ staged, installed, pluginYaml, keepPaths, log }: PluginToSign): void {
  const isPresent = (path: string): boolean =>
    pathExistsSync(join(installed, path)) || pathExistsSync(join(staged, path))
  const kept = keepPaths.filter(path => isCovered(path, pluginYaml)).filter(isPresent)
  if (kept.length === 0) return
  log.warning(
    `plugin.sig is made of what the artifact holds beside its entry point, and there ${kept.join(', ')} of keep-paths are the host's own: with other files in them the host framework finds the signature broken. Have the publisher put entry_point into a directory of its own, or keep data elsewhere.`,
  )
}
