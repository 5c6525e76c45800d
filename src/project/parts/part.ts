import { join } from 'node:path'
import { isSourced, type ManifestPart } from '../../core/content/manifest.ts'
import type { PluginYaml, VariableNames } from '../../core/content/plugin-yaml.ts'
import { treeBelow } from '../../install/files/trees/tree-below.ts'
import { installPath, placeName } from '../../install/host/layout.ts'
import { findLeftBehind, type PreviousInstall, readPreviousInstall } from '../../install/host/previous-install.ts'
import { signForHost } from '../../install/host/sign-for-host.ts'
import { keepIfIntact } from '../../install/steps/parts/intact-part.ts'
import {
  environmentOf,
  type NewPart,
  type Part,
  type PartEnvironment,
  type PartTree,
} from '../../install/steps/parts/part.ts'
import type { ProjectDeployment } from '../deployment.ts'
import type { VerifiedProject } from '../verify.ts'
import { findUnchanged, type SuppliedPart } from './fetch-parts.ts'
import { readPartPluginYaml } from './part-plugin-yaml.ts'

/** The trees from which a project's parts are installed. */
export interface PartSource extends VerifiedProject {
  readonly artifactSha256: string
  /** The fetched parts, by name, except those that are installed and stay. */
  readonly supplied: ReadonlyMap<string, SuppliedPart>
}

/**
 * Returns one plugin or extension of a project: staged, or in its place already and intact. Signs a staged plugin that
 * has a plugin.yaml, as `signForHost` does. Throws as `orderInstallation` does.
 */
export async function stagePart(deployment: ProjectDeployment, source: PartSource, part: ManifestPart): Promise<Part> {
  const { layout, request } = deployment
  const { shelf, id, directory, environment } = part
  const previous = readPreviousInstall(layout, part)
  const version = versionOf(source, part, previous)
  const facts = { shelf, id, directory, ...version, artifactSha256: source.artifactSha256, previous }
  const installed = isSourced(part) ? findUnchanged(source, part) : source.installed?.get(placeName(part))
  if (installed !== undefined) {
    return { ...facts, environment: both(environment, installed.pluginYaml), intact: installed.identity }
  }
  const origin = { contract: 'project' as const, slug: request.projectId }
  const leftBehind = findLeftBehind(layout, previous, origin)
  const { pluginYaml, ...files } = await signPart(deployment, source, { ...part, previous, leftBehind })
  const newPart = { ...facts, ...files, environment: both(environment, pluginYaml), leftBehind }
  return await keepIfIntact(deployment, newPart, origin)
}

/**
 * A fetched part has its actual version, a part that stays keeps its version, and any other part has the manifest's.
 */
function versionOf(
  source: PartSource,
  part: ManifestPart,
  { installed: row }: PreviousInstall,
): Pick<Part, 'version' | 'source'> {
  const fetched = source.supplied.get(placeName(part))
  if (fetched !== undefined) return { version: fetched.version, source: fetched.source }
  const stays = isSourced(part) && findUnchanged(source, part) !== undefined
  return stays ? { version: row?.version ?? part.version, source: row?.source } : { version: part.version }
}

async function signPart(
  { layout, keepPaths, request, tools }: ProjectDeployment,
  { content, tree, supplied }: PartSource,
  { shelf, id, folder, previous, leftBehind }: ManifestPart & Pick<NewPart, 'previous' | 'leftBehind'>,
): Promise<Pick<NewPart, 'staged' | 'tree'> & { pluginYaml: PluginYaml | undefined }> {
  const placed = supplied.get(placeName({ shelf, id }))
  const { staged, tree: shipped } = placed ?? { staged: join(content, folder), tree: treeBelow(tree, folder) }
  const pluginYaml =
    shelf === 'plugins' && hasPluginYaml(shipped) ? readPartPluginYaml({ shelf, id }, staged) : undefined
  if (pluginYaml === undefined) return { staged, tree: shipped, pluginYaml }
  const installed = leftBehind ?? installPath(layout, previous.place)
  const toSign = { id, staged, tree: shipped, installed, keepPaths, log: tools.log }
  return { staged, tree: await signForHost({ ...toSign, pluginYaml }, request.pluginSecretKey), pluginYaml }
}

/** Combines the variables that the manifest and plugin.yaml name: a plugin may declare its needs in either. */
function both(manifest: VariableNames, pluginYaml: PluginYaml | undefined): PartEnvironment {
  const { required, optional, ...injection } = environmentOf(pluginYaml)
  return {
    ...injection,
    required: [...new Set([...manifest.required, ...required])],
    optional: [...new Set([...manifest.optional, ...optional])],
  }
}

function hasPluginYaml({ files, symlinks }: PartTree): boolean {
  return [...files, ...symlinks].some(({ path }) => path === 'plugin.yaml')
}
