import type { PluginYaml } from '../../core/content/plugin-yaml.ts'
import { isBelow } from '../../core/identifiers.ts'
import { cleanForeignText } from '../../core/text.ts'
import { isSystemError } from '../files/errors.ts'
import { type PartTree, pathsOf } from '../files/extracted-tree.ts'
import { withListed } from '../files/spelling.ts'
import { directoryIn, installPath, type Layout, type Place, placeName } from '../host/layout.ts'
import type { ReplacingPart } from '../host/previous-install.ts'
import { findInstalled, readInstalled } from '../host/record.ts'
import { type InstalledRow, isFrom, type Origin, type SnapshotRow } from '../host/rows.ts'
import { type DriftEntry, listDrift } from '../journal/facts.ts'
import type { Deployment } from '../transaction/record.ts'
import type { TreeDifference } from '../trees/compare.ts'
import { isModified, isOnlyAdded, PLUGIN_YAML, readRecordedYaml } from '../trees/drift.ts'
import {
  type FindRecorded,
  identityOf,
  isSameKind,
  itemsOf,
  openTreeRecord,
  type RecordedItem,
  readTreeRecord,
  type TreeIdentity,
  TreeRecordDamage,
} from '../trees/record.ts'
import { environmentOf, keptIn, type NewPart, type Part, type StepContext } from './context.ts'
import { isSignedForHost, needsPluginSig, readPluginYaml, signedFiles } from './plugin-sig.ts'

const MAX_NAME_CHARS = 150
/** The limit for one report, over all parts: a tree that a tool has rewritten may differ in every file. */
const MAX_REPORTED_PATHS = 500
const MAX_REPORTED_BYTES = 64 * 1024

/**
 * Adds to the report how the parts that stay in their places differ from what was installed. The differences of other
 * parts are added when these parts are replaced, because other processes may change the files until then.
 */
export async function recordDriftOfKept(deployment: Deployment, parts: readonly Part[]): Promise<void> {
  await recordDrift(
    deployment,
    parts.filter(({ intact }) => intact !== undefined),
  )
}

/**
 * Adds to the report how installed files differ from what was installed, or that they could not be compared. Replaces
 * the earlier entries of these parts. Throws the reason for a cancellation.
 */
export async function recordDrift(deployment: Deployment, places: readonly Place[]): Promise<void> {
  const { record } = deployment
  const { drift: known = [] } = record.facts
  const found = []
  for (const place of places) found.push(driftEntryOf(deployment, place, await deployment.drift.of(place)) ?? [])
  const names = new Set(places.map(placeName))
  const drift = [...known.filter(entry => !names.has(placeName(entry))), ...found.flat()]
  if (drift.length + known.length > 0) await record.update({ drift: bounded(drift) })
}

/** Warns, in one line, of the differences that the report lists. */
export function warnOfDrift({ record, tools }: Deployment): void {
  const differing = (record.facts.drift ?? []).filter(({ compared }) => compared !== false)
  if (differing.length > 0) tools.log.warning(describeDrift(differing))
}

function driftEntryOf(
  { layout }: Deployment,
  place: Place,
  difference: TreeDifference | undefined,
): DriftEntry | undefined {
  const installed = findInstalled(readInstalled(layout), place)
  const named = { shelf: place.shelf, id: place.id, ...directoryIn(place), version: installed?.version ?? null }
  if (difference === undefined) return installed && { ...named, added: [], removed: [], changed: [], compared: false }
  if (!isModified(difference)) return undefined
  const { instead } = difference
  const none = { added: [], removed: [], changed: [] }
  return { ...named, ...(instead === undefined ? difference : { ...none, instead }) }
}

/** Adds to the report which snapshots contain the modified trees that were replaced. */
export async function noteModifiedSnapshots({ deployment, results }: StepContext): Promise<void> {
  const { record } = deployment
  const drift = record.facts.drift?.map(entry => {
    const { snapshot, modified } = results.get(placeName(entry)) ?? {}
    const path = `.hub-deploy/snapshots/${placeName(entry)}/${snapshot}`
    return snapshot === undefined || modified === undefined ? entry : { ...entry, snapshot: path }
  })
  if (drift?.some(({ snapshot }) => snapshot !== undefined)) await record.update({ drift })
}

function bounded(entries: readonly DriftEntry[]): DriftEntry[] {
  let [room, bytes] = [MAX_REPORTED_PATHS, MAX_REPORTED_BYTES]
  return entries.map(({ omitted: before = 0, ...entry }) => {
    let omitted = before
    const take = (paths: readonly string[]): string[] => {
      const taken = paths.filter(path => {
        if (room <= 0) return false
        const size = Buffer.byteLength(JSON.stringify(path))
        if (size > bytes) return false
        room -= 1
        bytes -= size
        return true
      })
      omitted += paths.length - taken.length
      return taken
    }
    const [changed, removed, added] = [take(entry.changed), take(entry.removed), take(entry.added)]
    return { ...entry, added, removed, changed, ...(omitted > 0 ? { omitted } : {}) }
  })
}

/** Returns the sentence about these differences for the log. */
export function describeDrift(entries: readonly DriftEntry[]): string {
  const { names, more, directories } = listDrift(entries)
  const [listed, added] = [names, directories].map(paths =>
    paths.map(path => cleanForeignText(path, MAX_NAME_CHARS)).join(', '),
  )
  const advice = added === '' ? '' : ` An update moves ${added} into a snapshot, unless keep-paths names it.`
  return `Files on this host differ from what was installed: ${listed}${more}.${advice}`
}

const SIGNED = [PLUGIN_YAML, 'plugin.sig']

/** A deployment that may have the secret that signs plugins for the host. */
type SigningDeployment = Deployment & { readonly request: { readonly pluginSecretKey: string | undefined } }

/** A verified artifact, and its origin. */
interface VerifiedSource {
  readonly origin: Origin
  readonly sha256: string
}

/** An installed tree that came from the verified artifact itself, with no file missing or changed. */
export interface IntactTree {
  readonly place: Place
  readonly identity: TreeIdentity
  /** Finds a recorded file or symlink of the tree by its path. */
  readonly find: FindRecorded
  /** Undefined for an extension, and for a plugin without a `plugin.yaml`. */
  readonly pluginYaml: PluginYaml | undefined
}

/**
 * Finds the tree that is installed in a place, if extracting this artifact would give the same tree, apart from added
 * files. The tree must have come from the same bytes, with the same keep-paths and `plugin.sig`, and no file may be
 * missing or changed. Returns undefined otherwise, or if only an extraction could show whether the trees are the same.
 */
export async function findIntactTree(
  deployment: SigningDeployment,
  { previous: { installed }, ...part }: ReplacingPart,
  { origin, sha256 }: VerifiedSource,
): Promise<IntactTree | undefined> {
  if (installed?.artifact_sha256 !== sha256 || installed.modified || !isFrom(installed, origin)) return undefined
  const { shelf, id, directory } = part
  const place = { shelf, id, directory }
  const find = orIfUnreadable(undefined, () => openTreeRecord(deployment.layout, installed))
  if (find === undefined || !(await isTreeIntact(deployment, place))) return undefined
  const bare = { place, identity: identityOf(installed), find, pluginYaml: undefined }
  const tree = shelf === 'plugins' ? await withPluginYaml(deployment, place, bare) : bare
  const keepPaths = keptIn(deployment, { ...place, environment: environmentOf(tree?.pluginYaml) })
  return isSameList(installed.keep_paths, keepPaths) ? tree : undefined
}

/** True if an intact tree has a regular file at this path. */
export function hasRegularFile({ find }: IntactTree, path: string): boolean {
  return (find(path)?.kind ?? 'link') !== 'link'
}

/**
 * Turns a part into one that stays in its place, if its new tree is already installed there: nothing is missing or
 * changed, and the plugin's signature covers no added file. Returns any other part as it is.
 */
export async function keepIfIntact(deployment: Deployment, part: NewPart, origin: Origin): Promise<Part> {
  const { installed } = part.previous
  if (installed === undefined || !isFrom(installed, origin)) return part
  const isSame = orIfUnreadable(false, () => isRecordedTree(deployment, part, installed))
  if (!isSame || !(await isTreeIntact(deployment, part)) || (await isAddedToSigned(deployment, part))) return part
  const { staged: _, tree: __, ...facts } = part
  return { ...facts, intact: identityOf(installed) }
}

/** True if every recorded file is installed as it was recorded. Added files do no harm. */
async function isTreeIntact(deployment: Deployment, place: Place): Promise<boolean> {
  const drift = await deployment.drift.of(place)
  return drift !== undefined && isOnlyAdded(drift)
}

/**
 * True if the signature of the installed plugin covers a file that was added. In that case, the host framework rejects
 * the plugin.
 */
async function isAddedToSigned(deployment: Deployment, part: NewPart): Promise<boolean> {
  const shipped = pathsOf(part.tree.files)
  if (!SIGNED.every(path => shipped.has(path))) return false
  const pluginYaml = readPluginYaml(part.staged)
  if (!needsPluginSig(pluginYaml)) return false
  const isKept = isBelow(withListed(installPath(deployment.layout, part), keptIn(deployment, part)))
  const found = await signedFiles(installPath(deployment.layout, part), pluginYaml)
  return found.some(path => !shipped.has(path) && !isKept(path))
}

/** True if a record lists the files, modes and symlinks of this part, and no others. */
function isRecordedTree(deployment: Deployment, part: NewPart, installed: InstalledRow): boolean {
  const record = readTreeRecord(deployment.layout, installed)
  if (record === undefined) return false
  const items = itemsOf(part.tree, withListed(part.staged, keptIn(deployment, part)))
  for (const recorded of record) if (!isUnchangedItem(recorded, items.next().value)) return false
  return items.next().done === true
}

/** A tree in a folder of this run, before it is signed for the host. */
interface FetchedTree {
  readonly staged: string
  readonly tree: PartTree
  /** Undefined for a service. */
  readonly pluginYaml: PluginYaml | undefined
}

/**
 * True if a version that this host has or retains consists of these files, with their modes and symlinks. Ignores what
 * the record leaves out, the `plugin.sig` that the host needs, and recorded files that are not in the tree if `isAdded`
 * returns true for them. False for a version that was modified here, and without a usable record.
 */
export function hasContent(
  layout: Layout,
  version: InstalledRow | SnapshotRow,
  { staged, tree, pluginYaml }: FetchedTree,
  isAdded: (path: string) => boolean = () => false,
): boolean {
  if (version.modified) return false
  const isHosts = (path: string): boolean =>
    path === 'plugin.sig' && pluginYaml !== undefined && needsPluginSig(pluginYaml)
  const items = [...itemsOf(tree, withListed(staged, version.keep_paths))].filter(({ path }) => !isHosts(path))
  const unseen = new Map(items.map(item => [item.path, item]))
  const isExpected = (recorded: RecordedItem): boolean => {
    const { path } = recorded
    const item = unseen.get(path)
    unseen.delete(path)
    return isHosts(path) || (item === undefined ? isAdded(path) : isUnchangedItem(recorded, item))
  }
  return orIfUnreadable(false, () => {
    const record = readTreeRecord(layout, version)
    if (record === undefined) return false
    for (const recorded of record) if (!isExpected(recorded)) return false
    return unseen.size === 0
  })
}

function isUnchangedItem(recorded: RecordedItem, item: RecordedItem | undefined): boolean {
  if (item === undefined || !isSameKind(recorded, item)) return false
  return (['path', 'sha256', 'content'] as const).every(key => recorded[key] === item[key])
}

async function withPluginYaml(
  deployment: SigningDeployment,
  place: Place,
  tree: IntactTree,
): Promise<IntactTree | undefined> {
  const { layout, request, tools } = deployment
  const keepPaths = deployment.keepPathsOf(place)
  const installed = installPath(layout, place)
  // A kept plugin.yaml is the host's own, so the record says nothing about the artifact's plugin.yaml.
  if (withListed(installed, keepPaths).includes(PLUGIN_YAML)) return undefined
  if (tree.find(PLUGIN_YAML) === undefined) return tree
  try {
    const pluginYaml = readRecordedYaml(installed, tree.find)
    if (pluginYaml === undefined) return undefined
    const kept = keptIn(deployment, { ...place, environment: environmentOf(pluginYaml) })
    const plugin = { id: place.id, installed, pluginYaml, keepPaths: kept, log: tools.log, find: tree.find }
    return (await isSignedForHost(plugin, request.pluginSecretKey)) ? { ...tree, pluginYaml } : undefined
  } catch (error) {
    if (isSystemError(error)) return undefined
    throw error
  }
}

/** Treats an unusable record like a missing one, because a warning names the record before the tree is replaced. */
function orIfUnreadable<Value>(otherwise: Value, read: () => Value): Value {
  try {
    return read()
  } catch (error) {
    if (error instanceof TreeRecordDamage || isSystemError(error)) return otherwise
    throw error
  }
}

function isSameList(recorded: readonly string[], asked: readonly string[]): boolean {
  return JSON.stringify(recorded.toSorted()) === JSON.stringify(asked.toSorted())
}
