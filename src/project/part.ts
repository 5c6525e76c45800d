import { join } from 'node:path'
import type { ManifestPart } from '../core/content/manifest.ts'
import type { ExtractedTree } from '../install/files/extracted-tree.ts'
import { installPath } from '../install/host/layout.ts'
import { findLeftBehind, readPreviousInstall } from '../install/host/previous-install.ts'
import { readPluginYaml } from '../install/host/read-plugin-yaml.ts'
import { signForHost } from '../install/host/sign-for-host.ts'
import type { Part, PartTree } from '../install/steps/part.ts'
import type { ProjectDeployment } from './deployment.ts'
import type { VerifiedProject } from './verify.ts'

/** Where the parts of a project come from. */
export interface PartSource extends VerifiedProject {
  readonly artifactSha256: string
}

/** One plugin or extension of a project, signed for this host. Throws as `orderInstallation` does. */
export async function stagePart(
  { layout, request, tools }: ProjectDeployment,
  { content, tree, artifactSha256 }: PartSource,
  { shelf, id, version, folder, environment }: ManifestPart,
): Promise<Part> {
  const place = { shelf, id }
  const staged = join(content, folder)
  const shipped = treeBelow(tree, folder)
  const pluginYaml = shelf === 'plugins' && hasPluginYaml(shipped) ? readPluginYaml(staged) : undefined
  const previous = readPreviousInstall(layout, place)
  const origin = { contract: 'project' as const, slug: request.projectId }
  const leftBehind = findLeftBehind(layout, previous, origin)
  const installed = leftBehind ?? installPath(layout, place)
  const toSign = { id, staged, tree: shipped, installed, keepPaths: request.keepPaths, log: tools.log }
  const signed = pluginYaml ? await signForHost({ ...toSign, pluginYaml }, request.pluginSecretKey) : shipped
  return {
    ...place,
    version,
    artifactSha256,
    staged,
    tree: signed,
    environment: {
      required: union(environment.required, pluginYaml?.environment.required),
      optional: union(environment.optional, pluginYaml?.environment.optional),
    },
    previous,
    leftBehind,
  }
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
function union(names: readonly string[], more: readonly string[] = []): string[] {
  return [...new Set([...names, ...more])]
}

function hasPluginYaml({ files, symlinks }: PartTree): boolean {
  return [...files, ...symlinks].some(({ path }) => path === 'plugin.yaml')
}
