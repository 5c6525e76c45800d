import { hash } from 'node:crypto'
import { constants } from 'node:fs'
import { join } from 'node:path'
import { type PluginYaml, parsePluginYaml } from '../../../core/content/plugin-yaml.ts'
import { isBelow } from '../../../core/is-below.ts'
import { PLUGIN_YAML_LIMITS } from '../../../core/limits.ts'
import { readSmallFileSync } from '../../files/read-small-file.ts'
import { isSystemError } from '../../files/system-errors.ts'
import { pathsOf } from '../../files/trees/extracted-tree.ts'
import { isFrom } from '../../host/installed/origin.ts'
import type { InstalledRow, Origin } from '../../host/installed/rows.ts'
import { installPath, isSamePlace, type Place } from '../../host/layout.ts'
import { needsPluginSig, signedFiles } from '../../host/plugin-sig.ts'
import type { PreviousInstall } from '../../host/previous-install.ts'
import { readPluginYaml } from '../../host/read-plugin-yaml.ts'
import { isSignedForHost } from '../../host/sign-for-host.ts'
import { isOnlyAdded } from '../../host/trees/drift-check.ts'
import { itemsOf } from '../../host/trees/record/extracted-items.ts'
import { type FindRecorded, openTreeRecord, readTreeRecord } from '../../host/trees/record/read-tree-record.ts'
import type { RecordedItem } from '../../host/trees/record/recorded-item.ts'
import { identityOf, type TreeIdentity } from '../../host/trees/record/tree-identity.ts'
import { TreeRecordDamage } from '../../host/trees/record/tree-record-damage.ts'
import type { Deployment } from '../../transaction/context.ts'
import type { NewPart, Part } from './part.ts'

const PLUGIN_YAML = 'plugin.yaml'
/** The files that every signed plugin has. */
const SIGNED = [PLUGIN_YAML, 'plugin.sig']

/** A deployment that may have the secret that signs plugins for the host. */
export type SigningDeployment = Deployment & { readonly request: { readonly pluginSecretKey: string | undefined } }

/** A verified artifact, and its origin. */
export interface VerifiedSource {
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
  { place, installed }: PreviousInstall,
  { origin, sha256 }: VerifiedSource,
): Promise<IntactTree | undefined> {
  if (installed?.artifact_sha256 !== sha256 || installed.modified || !isFrom(installed, origin)) return undefined
  if (!isSameList(installed.keep_paths, deployment.keepPaths)) return undefined
  const find = orIfUnreadable(undefined, () => openTreeRecord(deployment.layout, installed))
  if (find === undefined || !(await isIntact(deployment, place))) return undefined
  const tree = { place, identity: identityOf(installed), find, pluginYaml: undefined }
  return place.shelf === 'plugins' ? await withPluginYaml(deployment, place, tree) : tree
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
  if (installed === undefined || !isFrom(installed, origin) || !isSamePlace(part, part.previous.place)) return part
  const isSame = orIfUnreadable(false, () => isRecordedTree(deployment, part, installed))
  if (!isSame || !(await isIntact(deployment, part)) || (await isAddedToSigned(deployment, part))) return part
  const { staged: _, tree: __, ...facts } = part
  return { ...facts, intact: identityOf(installed) }
}

/** True if every recorded file is installed as it was recorded. Added files do no harm. */
async function isIntact(deployment: Deployment, place: Place): Promise<boolean> {
  const drift = await deployment.drift.of(place)
  return drift !== undefined && isOnlyAdded(drift)
}

/**
 * True if the signature of the installed plugin covers a file that was added. In that case, the host framework rejects
 * the plugin.
 */
async function isAddedToSigned({ layout, keepPaths }: Deployment, part: NewPart): Promise<boolean> {
  const shipped = pathsOf(part.tree.files)
  if (!SIGNED.every(path => shipped.has(path))) return false
  const pluginYaml = readPluginYaml(part.staged)
  if (!needsPluginSig(pluginYaml)) return false
  const isKept = isBelow(keepPaths)
  const found = await signedFiles(installPath(layout, part), pluginYaml)
  return found.some(path => !shipped.has(path) && !isKept(path))
}

/** True if a record lists the files, modes and symlinks of this part, and no others. */
function isRecordedTree({ layout, keepPaths }: Deployment, part: NewPart, installed: InstalledRow): boolean {
  const record = readTreeRecord(layout, installed)
  if (record === undefined) return false
  // Earlier versions of this action recorded no modes, but the same artifact has the same modes.
  const knowsMode = installed.artifact_sha256 !== part.artifactSha256
  const items = itemsOf(part.tree, keepPaths)
  for (const recorded of record) if (!isAlike(recorded, items.next().value, knowsMode)) return false
  return items.next().done === true
}

function isAlike(recorded: RecordedItem, item: RecordedItem | undefined, knowsMode: boolean): boolean {
  if (item === undefined || recorded.path !== item.path || recorded.sha256 !== item.sha256) return false
  const isSameKind = recorded.kind === item.kind || (!knowsMode && recorded.kind === 'file' && item.kind !== 'link')
  return isSameKind && recorded.content === item.content
}

async function withPluginYaml(
  { layout, keepPaths, request, tools }: SigningDeployment,
  place: Place,
  tree: IntactTree,
): Promise<IntactTree | undefined> {
  const { pluginSecretKey } = request
  // A kept plugin.yaml is the host's own, so the record says nothing about the artifact's plugin.yaml.
  if (keepPaths.includes(PLUGIN_YAML)) return undefined
  if (tree.find(PLUGIN_YAML) === undefined) return tree
  const installed = installPath(layout, place)
  try {
    const pluginYaml = readRecordedYaml(installed, tree.find)
    if (pluginYaml === undefined) return undefined
    const plugin = { id: place.id, installed, pluginYaml, keepPaths, log: tools.log, find: tree.find }
    return (await isSignedForHost(plugin, pluginSecretKey)) ? { ...tree, pluginYaml } : undefined
  } catch (error) {
    if (isSystemError(error)) return undefined
    throw error
  }
}

/** Reads plugin.yaml. Returns undefined unless the bytes read here are those of the record. */
function readRecordedYaml(installed: string, find: FindRecorded): PluginYaml | undefined {
  const text = readSmallFileSync(join(installed, PLUGIN_YAML), PLUGIN_YAML_LIMITS.bytes, constants.O_NOFOLLOW)
  const isRecorded = text !== undefined && find(PLUGIN_YAML)?.sha256 === hash('sha256', text)
  return isRecorded ? parsePluginYaml(text) : undefined
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

function isSameList(recorded: readonly string[] | undefined, asked: readonly string[]): boolean {
  return recorded !== undefined && JSON.stringify(recorded.toSorted()) === JSON.stringify(asked.toSorted())
}
