import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { isSourced, type ManifestPart, type SourcedPart } from '../core/content/manifest.ts'
import { digestedFiles } from '../core/content/project-content.ts'
import { ArtifactError } from '../core/errors.ts'
import { versionSchema } from '../core/identifiers.ts'
import { inTreeOrder, treeDigest } from '../core/trust/tree-digest.ts'
import { TimeSlice } from '../install/files/time-slice.ts'
import { treeBelow } from '../install/files/tree-below.ts'
import { placeName } from '../install/host/layout.ts'
import { readPreviousInstall, stateFor } from '../install/host/previous-install.ts'
import { readPluginYaml } from '../install/host/read-plugin-yaml.ts'
import type { ProjectDeployment } from './deployment.ts'
import { layOverStub, type PlacedTree } from './overlay.ts'
import type { FetchedPart } from './part-supplier.ts'
import type { VerifiedProject } from './verify.ts'

/** A part from elsewhere, laid over its stub, under the version that it really is. */
export interface SuppliedPart extends PlacedTree {
  readonly version: string
}

/**
 * Fetches the parts that come from elsewhere into this deployment's own folder, each verified by its source's rules and
 * by its `sha256` in the signed manifest. By their names; without those that are installed and intact, and whose source
 * cannot have changed. Throws what the supplier throws, and ArtifactError `content_mismatch`.
 */
export async function fetchParts(
  deployment: ProjectDeployment,
  project: VerifiedProject,
  parts: readonly ManifestPart[],
): Promise<ReadonlyMap<string, SuppliedPart>> {
  const wanted = parts.filter(isSourced).filter(part => !project.installed?.has(placeName(part)))
  const supplied = new Map<string, SuppliedPart>()
  if (wanted.length === 0) return supplied
  deployment.supplier.requireInputs(wanted)
  for (const [index, part] of wanted.entries()) {
    const folder = join(project.content, '..', `source-${index}`)
    mkdirSync(folder, { mode: 0o700 })
    supplied.set(placeName(part), await fetchPart(deployment, project, { part, folder }))
  }
  return supplied
}

async function fetchPart(
  { supplier, layout, request, tools }: ProjectDeployment,
  { content, tree }: VerifiedProject,
  { part, folder }: { part: SourcedPart; folder: string },
): Promise<SuppliedPart> {
  const origin = { contract: 'project' as const, slug: request.projectId }
  const installed = stateFor(readPreviousInstall(layout, part), origin)
  const fetched = await supplier.fetch({ part, folder, installed })
  const digest = verifyTree(part, fetched)
  const stub = { staged: join(content, part.folder), tree: treeBelow(tree, part.folder) }
  const placed = await layOverStub(fetched, stub, new TimeSlice(tools.signal))
  const version = fetched.version ?? versionOf(part, placed)
  tools.log.info(`${placeName(part)}: version ${version}, tree sha256 ${digest}.`)
  return { ...placed, version }
}

/** The digest of what was fetched, before the stub; returns it. */
function verifyTree(part: SourcedPart, { tree }: FetchedPart): string {
  const found = treeDigest(inTreeOrder(digestedFiles(tree)))
  if (part.sha256 === null || part.sha256 === found) return found
  throw new ArtifactError(
    'content_mismatch',
    `The project's manifest.json gives the digest ${part.sha256} for ${placeName(part)}, but its source supplied ${found}: nothing was installed. Its source has changed: the publisher must check it and seal the project again.`,
  )
}

/** A commit has no version but what its plugin.yaml says. */
function versionOf({ shelf, version }: SourcedPart, { staged, tree }: PlacedTree): string {
  if (shelf !== 'plugins' || !tree.files.some(({ path }) => path === 'plugin.yaml')) return version
  const { versionAsWritten } = readPluginYaml(staged)
  return versionSchema.safeParse(versionAsWritten).data ?? version
}
