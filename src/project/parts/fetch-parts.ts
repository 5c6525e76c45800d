import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { isFixed } from '../../core/content/external-source.ts'
import { isSourced, type ManifestPart, type SourcedPart } from '../../core/content/manifest.ts'
import { digestedFiles } from '../../core/content/project-content.ts'
import { ArtifactError } from '../../core/errors.ts'
import { listNames } from '../../core/foreign-text.ts'
import { versionSchema } from '../../core/identifiers.ts'
import type { Log } from '../../core/log.ts'
import { treeDigest } from '../../core/trust/tree-digest.ts'
import { TimeSlice } from '../../install/files/time-slice.ts'
import { treeBelow } from '../../install/files/trees/tree-below.ts'
import { isFrom } from '../../install/host/installed/origin.ts'
import type { InstalledVersion, SourceRecord } from '../../install/host/installed/rows.ts'
import { placeName } from '../../install/host/layout.ts'
import { readPreviousInstall, versionsFrom } from '../../install/host/previous-install.ts'
import { wasSupplyReplaced } from '../../install/reports/replaced-artifact.ts'
import type { IntactTree } from '../../install/steps/parts/intact-part.ts'
import type { ProjectDeployment } from '../deployment.ts'
import type { VerifiedProject } from '../verify.ts'
import { isStubFile, layOverStub, type PlacedTree } from './overlay.ts'
import { readPartPluginYaml } from './part-plugin-yaml.ts'
import type { FetchedPart, PartPast, SuppliedVersion } from './part-supplier.ts'

/** A part from elsewhere, laid over its stub, with its actual version. */
export interface SuppliedPart extends PlacedTree {
  readonly version: string
  readonly source: SourceRecord
}

/**
 * Fetches the parts that come from elsewhere into this deployment's own folder. Verifies each part by its source's
 * rules and by the part's `sha256`, if the signed manifest gives one. Returns a map from the name of each part to the
 * fetched part. Leaves out each part that `findUnchanged` finds. Throws what the supplier throws, and ArtifactError
 * `content_mismatch`, `not_a_plugin` or `invalid_manifest`.
 */
export async function fetchParts(
  deployment: ProjectDeployment,
  project: VerifiedProject,
  parts: readonly ManifestPart[],
): Promise<ReadonlyMap<string, SuppliedPart>> {
  const wanted = parts.filter(isSourced).filter(part => findUnchanged(project, part) === undefined)
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

/**
 * Returns the tree of a part from elsewhere that can stay: installed from this artifact of the project, intact, and
 * with a source that cannot have changed. Returns undefined for any other part.
 */
export function findUnchanged({ intact }: VerifiedProject, part: SourcedPart): IntactTree | undefined {
  return isFixed(part.source) ? intact?.get(placeName(part)) : undefined
}

async function fetchPart(
  { supplier, layout, request, tools }: ProjectDeployment,
  { content, tree }: VerifiedProject,
  { part, folder }: { part: SourcedPart; folder: string },
): Promise<SuppliedPart> {
  const fetched = await supplier.fetch({ part, folder, past: pastOf({ layout, request }, part) })
  const digest = verifyTree(part, fetched)
  const stub = { staged: join(content, part.folder), tree: treeBelow(tree, part.folder) }
  noticeLeftOut(part, stub, tools.log)
  const placed = await layOverStub(fetched, stub, new TimeSlice(tools.signal))
  const version = fetched.version ?? versionOf(part, placed)
  tools.log.info(`${placeName(part)}: version ${version}, tree sha256 ${digest}.`)
  return { ...placed, version, source: fetched.source }
}

function pastOf({ layout, request }: Pick<ProjectDeployment, 'layout' | 'request'>, part: SourcedPart): PartPast {
  const origin = { contract: 'project' as const, slug: request.projectId }
  const previous = readPreviousInstall(layout, part)
  const isOurs = previous.installed !== undefined && isFrom(previous.installed, origin)
  const [installed] = isOurs ? supplyOf(previous.installed) : []
  return {
    installed,
    history: versionsFrom(previous, origin).flatMap(supplyOf),
    wasReplaced: source => wasSupplyReplaced(layout, { origin, part, source }),
  }
}

function supplyOf({ version, source }: Pick<InstalledVersion, 'version' | 'source'>): SuppliedVersion[] {
  return source === undefined ? [] : [{ version, source }]
}

/** Logs a notice for files and symlinks that the packer should have left out: the source supplies the part's code. */
function noticeLeftOut(part: SourcedPart, { tree }: PlacedTree, log: Log): void {
  const names = [...tree.files.filter(file => !isStubFile(file)), ...tree.symlinks].map(({ path }) => path)
  if (names.length === 0) return
  log.notice(
    `${placeName(part)} comes from the source that the manifest names, so this deployment leaves out what the archive contains in addition to the stub: ${listNames(names)}. A stub may contain only plugin.yaml, service.yaml, extension.yaml and *.template files, and no symlinks.`,
  )
}

/** Verifies and returns the digest of the fetched tree, which does not contain the stub yet. */
function verifyTree(part: SourcedPart, { tree }: FetchedPart): string {
  const found = treeDigest(digestedFiles(tree))
  if (part.sha256 === null || part.sha256 === found) return found
  throw new ArtifactError(
    'content_mismatch',
    `The project's manifest.json gives the digest ${part.sha256} for ${placeName(part)}, but the files from its source have the digest ${found}: nothing was installed. The source may have changed: the publisher must check the source and seal the project again.`,
  )
}

/** Returns the version in plugin.yaml, else the one in the manifest, because a commit has no version of its own. */
function versionOf({ shelf, id, version }: SourcedPart, { staged, tree }: PlacedTree): string {
  const hasPluginYaml = [...tree.files, ...tree.symlinks].some(({ path }) => path === 'plugin.yaml')
  if (shelf !== 'plugins' || !hasPluginYaml) return version
  const { version: own } = readPartPluginYaml({ shelf, id }, staged)
  return versionSchema.safeParse(own).data ?? version
}
