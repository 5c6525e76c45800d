import { join } from 'node:path'
import type { ManifestPart } from '../core/content/manifest.ts'
import type { PluginYaml, VariableNames } from '../core/content/plugin-yaml.ts'
import type { ExtractedTree } from '../install/files/extracted-tree.ts'
import { installPath, placeName } from '../install/host/layout.ts'
import { findLeftBehind, readPreviousInstall } from '../install/host/previous-install.ts'
import { readPluginYaml } from '../install/host/read-plugin-yaml.ts'
import { signForHost } from '../install/host/sign-for-host.ts'
import { keepIfIntact } from '../install/steps/intact-part.ts'
import type { NewPart, Part, PartTree } from '../install/steps/part.ts'
import type { ProjectDeployment } from './deployment.ts'
import type { VerifiedProject } from './verify.ts'

/** Where the parts of a project come from. */
export interface PartSource extends VerifiedProject {
  readonly artifactSha256: string
}

/** One plugin or extension of a project: signed for this host, or in its place already. Throws as `orderInstallation` does. */
export async function stagePart(deployment: ProjectDeployment, source: PartSource, part: ManifestPart): Promise<Part> {
  const { layout, request } = deployment
  const { shelf, id, version, environment } = part
  const previous = readPreviousInstall(layout, { shelf, id })
  const facts = { shelf, id, version, artifactSha256: source.artifactSha256, previous }
  const installed = source.installed?.get(placeName(part))
  if (installed !== undefined) {
    return { ...facts, environment: both(environment, installed.pluginYaml), intact: installed.identity }
  }
  const origin = { contract: 'project' as const, slug: request.projectId }
  const leftBehind = findLeftBehind(layout, previous, origin)
  const { pluginYaml, ...files } = await signPart(deployment, source, { ...part, leftBehind })
  const newPart = { ...facts, ...files, environment: both(environment, pluginYaml), leftBehind }
  return await keepIfIntact(deployment, newPart, origin)
}

async function signPart(
  { layout, keepPaths, request, tools }: ProjectDeployment,
  { content, tree }: PartSource,
  { shelf, id, folder, leftBehind }: ManifestPart & { readonly leftBehind: string | undefined },
): Promise<Pick<NewPart, 'staged' | 'tree'> & { pluginYaml: PluginYaml | undefined }> {
  const staged = join(content, folder)
  const shipped = treeBelow(tree, folder)
  const pluginYaml = shelf === 'plugins' && hasPluginYaml(shipped) ? readPluginYaml(staged) : undefined
  if (pluginYaml === undefined) return { staged, tree: shipped, pluginYaml }
  const installed = leftBehind ?? installPath(layout, { shelf, id })
  const toSign = { id, staged, tree: shipped, installed, keepPaths, log: tools.log }
  return { staged, tree: await signForHost({ ...toSign, pluginYaml }, request.pluginSecretKey), pluginYaml }
}

/** What is below a folder, with paths relative to it; its symlinks do not leave it. */
function treeBelow({ files, symlinks }: ExtractedTree, folder: string): PartTree {
  const isBelow = ({ path }: { path: string }): boolean => path.startsWith(`${folder}/`)
  const below = (path: string): string => path.slice(folder.length + 1)
  return {
    files: files.filter(isBelow).map(file => ({ ...file, path: below(file.path) })),
    symlinks: symlinks.filter(isBelow).map(({ path, target, file, reach }) => {
      return { path: below(path), target, file: file === null ? null : below(file), reach: below(reach) }
    }),
  }
}

/** Both manifest and plugin.yaml may name what a plugin needs. */
function both(manifest: VariableNames, pluginYaml: PluginYaml | undefined): VariableNames {
  const { required = [], optional = [] } = pluginYaml?.environment ?? {}
  return {
    required: [...new Set([...manifest.required, ...required])],
    optional: [...new Set([...manifest.optional, ...optional])],
  }
}

function hasPluginYaml({ files, symlinks }: PartTree): boolean {
  return [...files, ...symlinks].some(({ path }) => path === 'plugin.yaml')
}
