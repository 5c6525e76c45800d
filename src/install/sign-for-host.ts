import { createHash } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { PluginYaml } from '../core/plugin-yaml.ts'
import { writeNewFile } from './durable-files.ts'
import type { ExtractedTree } from './extract-zip.ts'
import { buildPluginSig, needsPluginSig } from './plugin-sig.ts'

export interface PluginToSign {
  id: string
  /** The folder that holds the plugin. */
  staged: string
  tree: Pick<ExtractedTree, 'files' | 'symlinks'>
  pluginYaml: PluginYaml
}

/**
 * Puts `plugin.sig` into a staged plugin that needs one, in place of any that it brought; returns what the tree then
 * holds. Throws ArtifactError `not_a_plugin` when its entry point leaves the plugin.
 */
export async function signForHost(
  { id, staged, tree, pluginYaml }: PluginToSign,
  secret: string,
): Promise<PluginToSign['tree']> {
  if (!needsPluginSig(pluginYaml)) return tree
  const text = await buildPluginSig(staged, id, pluginYaml, secret)
  await rm(join(staged, 'plugin.sig'), { force: true })
  await writeNewFile(join(staged, 'plugin.sig'), text, 0o644)
  const isOther = ({ path }: { path: string }): boolean => path !== 'plugin.sig'
  const sha256 = createHash('sha256').update(text).digest('hex')
  const signature = { path: 'plugin.sig', size: Buffer.byteLength(text), mode: 0o644 as const, sha256 }
  return { files: [...tree.files.filter(isOther), signature], symlinks: tree.symlinks.filter(isOther) }
}
