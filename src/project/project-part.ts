import { join } from 'node:path'
import type { ManifestPart } from '../core/content/manifest.ts'
import type { PluginYaml } from '../core/content/plugin-yaml.ts'
import type { ExtractedTree } from '../install/files/extracted-tree.ts'
import { installPath } from '../install/host/layout.ts'
import { findLeftBehind, readPreviousInstall, warnOfTakeover } from '../install/host/previous-install.ts'
import { readPluginYaml } from '../install/host/read-plugin-yaml.ts'
import { signForHost } from '../install/host/sign-for-host.ts'
import { buildTreeRecord } from '../install/host/tree-record.ts'
import type { NewThing } from '../install/steps/step-context.ts'
import type { Run } from './run.ts'
import type { VerifiedProject } from './verify-project.ts'

type PartTree = Pick<ExtractedTree, 'files' | 'symlinks'>

/** One plugin or extension of a project, ready to be put in its place. Throws as `bindProject` does. */
export async function describePart(
  run: Run,
  { content, tree }: VerifiedProject,
  { shelf, id, version, folder, environment }: ManifestPart,
  artifactSha256: string,
): Promise<NewThing> {
  const staged = join(content, folder)
  const shipped = treeBelow(tree, folder)
  const pluginYaml = shelf === 'plugins' && hasPluginYaml(shipped) ? readPluginYaml(staged) : undefined
  const previous = readPreviousInstall(run.layout, { shelf, id })
  const origin = { contract: 'project' as const, slug: run.request.projectId }
  const leftBehind = findLeftBehind(run.layout, previous, origin)
  const signed = await sign(run, { id, staged, tree: shipped, pluginYaml, leftBehind })
  warnOfTakeover(previous, origin, run.tools.log)
  return {
    shelf,
    id,
    version,
    artifactSha256,
    staged,
    record: buildTreeRecord(signed, run.request.keepPaths),
    environment: {
      required: union(environment.required, pluginYaml?.environment.required),
      optional: union(environment.optional, pluginYaml?.environment.optional),
    },
    previous,
    leftBehind,
  }
}

/** What lies below a folder, with paths relative to it. */
function treeBelow({ files, symlinks }: ExtractedTree, folder: string): PartTree {
  const below = <Entry extends { path: string }>(entries: readonly Entry[]): Entry[] =>
    entries
      .filter(({ path }) => path.startsWith(`${folder}/`))
      .map(entry => ({ ...entry, path: entry.path.slice(folder.length + 1) }))
  return { files: below(files), symlinks: below(symlinks) }
}

/** Manifest and plugin.yaml may both name what a plugin needs. */
function union(names: readonly string[], more: readonly string[] = []): string[] {
  return [...new Set([...names, ...more])]
}

function hasPluginYaml({ files, symlinks }: PartTree): boolean {
  return [...files, ...symlinks].some(({ path }) => path === 'plugin.yaml')
}

interface UnsignedPart {
  id: string
  staged: string
  tree: PartTree
  pluginYaml: PluginYaml | undefined
  leftBehind: string | undefined
}

async function sign({ request, tools, layout }: Run, part: UnsignedPart): Promise<PartTree> {
  const { pluginYaml, leftBehind, ...unsigned } = part
  if (pluginYaml === undefined) return unsigned.tree
  const installed = leftBehind ?? installPath(layout, { shelf: 'plugins', id: part.id })
  const kept = { installed, keepPaths: request.keepPaths, log: tools.log }
  return signForHost({ ...unsigned, pluginYaml, ...kept }, request.pluginSecretKey)
}
