import { renameSync } from 'node:fs'
import { basename, join } from 'node:path'
import { comparisonKey } from '../core/archive/planned-tree.ts'
import { isSourced, type ManifestPart, type SourcedPart } from '../core/content/manifest.ts'
import type { PluginYaml, VariableNames } from '../core/content/plugin-yaml.ts'
import { digestedFiles } from '../core/content/project-content.ts'
import { isFixed } from '../core/content/source.ts'
import { ArtifactError, withSubject } from '../core/errors.ts'
import { versionSchema } from '../core/identifiers.ts'
import type { Log } from '../core/log.ts'
import { listNames } from '../core/text.ts'
import { inTreeOrder, treeDigest } from '../core/trust/tree-digest.ts'
import { makeOpenDirectorySync } from '../install/files/durable.ts'
import { type NamedTree, noticeScripts, type PartTree, treeBelow } from '../install/files/extracted-tree.ts'
import { asListed } from '../install/files/spelling.ts'
import { TimeSlice } from '../install/files/time-slice.ts'
import { installPath, type Layout, type PartName, placeName } from '../install/host/layout.ts'
import {
  findLeftBehind,
  type PreviousInstall,
  readPreviousInstall,
  versionsFrom,
} from '../install/host/previous-install.ts'
import {
  type InstalledRow,
  isFrom,
  type SnapshotRow,
  type SourcedVersion,
  type SourcePast,
  type SourceRecord,
} from '../install/host/rows.ts'
import { makeStandInSync } from '../install/host/stand-in.ts'
import { wasSupplyReplaced } from '../install/reports/audit.ts'
import { environmentOf, keptIn, type NewPart, type Part, type PartEnvironment } from '../install/steps/context.ts'
import { hasContent, type IntactTree, keepIfIntact } from '../install/steps/drift.ts'
import { readPluginYaml, signForHost } from '../install/steps/plugin-sig.ts'
import type { FetchedPart, ProjectDeployment } from './deployment.ts'
import type { VerifiedProject } from './sealed.ts'

/** A part from elsewhere, laid over its stub, with its actual version. */
interface SuppliedPart extends PlacedTree {
  readonly version: string
  readonly source: SourceRecord
}

/**
 * Fetches the parts that come from elsewhere into this deployment's own folder. Verifies each part by its source's
 * rules and by the part's `sha256`, if the signed manifest gives one. Returns a map from the name of each part to the
 * fetched part. Leaves out each part that `findUnchanged` finds. Throws ArtifactError `content_mismatch`,
 * `not_a_plugin` or `invalid_manifest`.
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
    makeStandInSync(deployment.layout, folder, part)
    supplied.set(placeName(part), await fetchPart(deployment, project, { part, folder }))
  }
  const pathsOf = ([name, { tree }]: [string, SuppliedPart]): string[] =>
    (tree.scripts ?? []).map(path => `${name}/${path}`)
  noticeScripts(deployment.tools.log, [...supplied].flatMap(pathsOf))
  return supplied
}

/**
 * Returns the tree of a part from elsewhere that can stay: installed from this artifact of the project, intact, and
 * with a source that cannot have changed. Returns undefined for any other part.
 */
function findUnchanged({ intact }: VerifiedProject, part: SourcedPart): IntactTree | undefined {
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
  const version = fetched.version ?? fetchedVersion(part, placed)
  tools.log.info(`${placeName(part)}: version ${version}, tree sha256 ${digest}.`)
  return { ...placed, version, source: fetched.source }
}

function pastOf({ layout, request }: Pick<ProjectDeployment, 'layout' | 'request'>, part: SourcedPart): SourcePast {
  const origin = { contract: 'project' as const, slug: request.projectId }
  const previous = readPreviousInstall(layout, part)
  const isOurs = previous.installed !== undefined && isFrom(previous.installed, origin)
  const [installed] = isOurs ? supplyOf(layout, previous.installed) : []
  return {
    installed,
    history: versionsFrom(previous, origin).flatMap(row => supplyOf(layout, row)),
    wasReplaced: source => wasSupplyReplaced(layout, { origin, part, source }),
  }
}

function supplyOf(layout: Layout, row: InstalledRow | SnapshotRow): SourcedVersion[] {
  const { version, source } = row
  const isFromStub = (path: string): boolean => isStubFile({ path })
  return source === undefined
    ? []
    : [{ version, source, hasContent: fetched => hasContent(layout, row, fetched, isFromStub) }]
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
function fetchedVersion({ shelf, id, version }: SourcedPart, { staged, tree }: PlacedTree): string {
  const hasPluginYaml = [...tree.files, ...tree.symlinks].some(({ path }) => path === 'plugin.yaml')
  if (shelf !== 'plugins' || !hasPluginYaml) return version
  const { version: own } = readPartPluginYaml({ shelf, id }, staged)
  return versionSchema.safeParse(own).data ?? version
}

/** A tree in a folder of this deployment. */
export interface PlacedTree {
  readonly staged: string
  readonly tree: NamedTree
}

/** The files that a stub may have in its top directory. It may also have templates, in any directory. */
const STUB_FILES: ReadonlySet<string> = new Set(['plugin.yaml', 'service.yaml', 'extension.yaml'])

/**
 * True if a file of the archive may be part of a stub. No other file is laid next to code that its source vouches for.
 */
function isStubFile({ path }: { readonly path: string }): boolean {
  return STUB_FILES.has(path) || basename(path).endsWith('.template')
}

/**
 * Lays a fetched tree over the part's stub from the archive: moves each stub file (`isStubFile`) into the fetched
 * tree's folder if nothing is in its way. If both trees have a file of the same name, the fetched file wins, even if it
 * is plugin.yaml. Two names count as the same if this platform or file system may treat them as one. Leaves out a
 * stub's symlinks, because they could now lead elsewhere.
 */
export async function layOverStub(fetched: PlacedTree, stub: PlacedTree, slice: TimeSlice): Promise<PlacedTree> {
  const { symlinks } = fetched.tree
  const taken = new Set([...fetched.tree.files, ...symlinks].map(({ path }) => keyOf(path)))
  const folders = new Map(fetched.tree.directories.map(path => [keyOf(path), path]))
  const isFree = ({ path }: { path: string }): boolean => {
    const isFolderFree = (folder: string): boolean => !taken.has(keyOf(folder)) && isFreeFor(folders, folder)
    const isKeyFree = !taken.has(keyOf(path)) && !folders.has(keyOf(path)) && foldersAbove(path).every(isFolderFree)
    return isKeyFree && asListed(fetched.staged, path) === path
  }
  const files = stub.tree.files.filter(file => isStubFile(file) && isFree(file))
  await slice.forEach(files, ({ path }) => {
    for (const folder of foldersAbove(path)) {
      if (folders.has(keyOf(folder))) continue
      folders.set(keyOf(folder), folder)
      makeOpenDirectorySync(join(fetched.staged, folder))
    }
    renameSync(join(stub.staged, path), join(fetched.staged, path))
  })
  // A rename changes a file's times, so the file's stamp is no longer valid.
  const moved = files.map(({ stamp: _, ...file }) => file)
  const laid = { files: inTreeOrder([...fetched.tree.files, ...moved]), directories: [...folders.values()] }
  const tree = { ...fetched.tree, ...laid }
  return { staged: fetched.staged, tree }
}

/**
 * A stub's directory may exist in the fetched tree under exactly the same name, but not under a different one with the
 * same key.
 */
function isFreeFor(folders: ReadonlyMap<string, string>, folder: string): boolean {
  return (folders.get(keyOf(folder)) ?? folder) === folder
}

function keyOf(path: string): string {
  return comparisonKey(path, process.platform)
}

/** `a/b/c` is in `a/b` and `a`. */
function foldersAbove(path: string): string[] {
  const parts = path.split('/')
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join('/'))
}

/** The trees from which a project's parts are installed. */
export interface PartSource extends VerifiedProject {
  readonly artifactSha256: string
  /** The fetched parts, by name, except those that are installed and stay. */
  readonly supplied: ReadonlyMap<string, SuppliedPart>
}

/**
 * Returns one plugin or extension of a project: staged, or in its place already and intact. Signs a staged plugin that
 * has a plugin.yaml, as `signForHost` does. Throws as `orderProject` does.
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
  const leftBehind = findLeftBehind(layout, { shelf, id, directory, previous }, origin)
  const { pluginYaml, ...files } = await signPart(deployment, source, { ...part, leftBehind })
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
  deployment: ProjectDeployment,
  { content, tree, supplied }: PartSource,
  { shelf, id, directory, folder, leftBehind }: ManifestPart & Pick<NewPart, 'leftBehind'>,
): Promise<Pick<NewPart, 'staged' | 'tree'> & { pluginYaml: PluginYaml | undefined }> {
  const { layout, request, tools } = deployment
  const placed = supplied.get(placeName({ shelf, id }))
  const { staged, tree: shipped } = placed ?? { staged: join(content, folder), tree: treeBelow(tree, folder) }
  const pluginYaml =
    shelf === 'plugins' && hasPluginYaml(shipped) ? readPartPluginYaml({ shelf, id }, staged) : undefined
  if (pluginYaml === undefined) return { staged, tree: shipped, pluginYaml }
  const place = { shelf, id, directory }
  const installed = leftBehind ?? installPath(layout, place)
  const keepPaths = keptIn(deployment, { ...place, environment: environmentOf(pluginYaml) })
  const toSign = { id, staged, tree: shipped, installed, keepPaths, log: tools.log }
  return { staged, tree: await signForHost({ ...toSign, pluginYaml }, request.pluginSecretKey), pluginYaml }
}

/** Combines the variables that the manifest and plugin.yaml name: a plugin may declare its needs in either. */
function both(manifest: VariableNames, pluginYaml: PluginYaml | undefined): PartEnvironment {
  const { required, optional, ...running } = environmentOf(pluginYaml)
  return {
    ...running,
    required: [...new Set([...manifest.required, ...required])],
    optional: [...new Set([...manifest.optional, ...optional])],
  }
}

function hasPluginYaml({ files, symlinks }: PartTree): boolean {
  return [...files, ...symlinks].some(({ path }) => path === 'plugin.yaml')
}

/** Reads the `plugin.yaml` of one of several parts, as `readPluginYaml` does, but names the part in each message. */
export function readPartPluginYaml(part: PartName, staged: string): PluginYaml {
  try {
    return readPluginYaml(staged)
  } catch (error) {
    throw withSubject(placeName(part), error)
  }
}
