import { dirname, join, posix, relative } from 'node:path'
import { ConfigError, DeploymentError } from '../../core/errors.ts'
import { isBelow } from '../../core/identifiers.ts'
import { listNames } from '../../core/text.ts'
import { justAppeared, justDisappeared, type PlannedMove } from '../changes/move.ts'
import { makeOpenDirectorySync, makePrivateDirectories, syncDirectory } from '../files/durable.ts'
import { toHostError } from '../files/errors.ts'
import { withListed } from '../files/spelling.ts'
import { pathExistsSync } from '../files/walk.ts'
import { installPath, type Layout, type Place, placeName, placePath, snapshotsPath } from '../host/layout.ts'
import { readEntryPoint } from '../host/previous-install.ts'
import { findInstalled, readHostRecord, readInstalled } from '../host/record.ts'
import { dropShipped, findKeptPaths, nextSnapshotName, uniteKeepPaths } from '../host/snapshots.ts'
import { requireMovableTree, requireSwitchable } from '../host/switchable.ts'
import type { Deployment } from '../transaction/record.ts'
import { describeTree, findStrayCaches, type TreeDifference } from '../trees/compare.ts'
import { compareRecorded, isAsRetained, isModified, isOnlyAdded, isSameDifference, noteDrift } from '../trees/drift.ts'
import {
  identityOf,
  itemsOf,
  type RecordedItem,
  readTreeRecord,
  type TreeIdentity,
  writeTreeRecord,
} from '../trees/record.ts'
import {
  type InstallOrder,
  keptIn,
  type NewPart,
  type Part,
  type RetainedPart,
  type ReturningPart,
  type StepContext,
} from './context.ts'
import { recordDrift } from './drift.ts'
import { treePathOf } from './settings.ts'

/**
 * Moves a snapshot to the staging folder, from which the snapshot later returns to its place. First moves two things
 * out of the snapshot: its own copy of each kept path that the installed version also has, and every bytecode cache
 * that was not recorded. The replaced service may have put code into such a cache. After all moves, compares the
 * snapshot with its record once more: from then on, only a process that has a file of the snapshot open can change the
 * snapshot. A rollback undoes all these moves. Throws DeploymentError `snapshot_modified`, `step_failed`, `unsafe_host`
 * or `inconsistent`, or file system errors.
 */
export async function takeSnapshot(context: StepContext, part: RetainedPart): Promise<ReturningPart> {
  const { deployment, transaction, stagingFolder } = context
  const { layout, tools } = deployment
  const { retained, ...facts } = part
  const snapshot = pathOf(layout, part)
  const staged = join(stagingFolder, 'restored', placeName(part))
  const caches = await listCaches(context, part, snapshot)
  requireMovableTree(layout, { root: snapshot, keepPaths: [...part.keepPaths, ...caches] })
  await moveAway(context, { part, folder: 'dropped', snapshot }, caches)
  const replaced = await moveKeptAway(context, part, snapshot)
  await makeFolders(stagingFolder, dirname(staged))
  await transaction.apply([{ type: 'move', from: relative(layout.root, snapshot), to: relative(layout.root, staged) }])
  const recorded = identityOf(retained)
  const tree = { root: staged, keepPaths: part.keepPaths, identity: recorded }
  const difference = await compareRecorded(layout, tree, { signal: tools.signal })
  const isChanged = difference === undefined || !isAsRetained(retained, difference)
  if (isChanged || (await listCaches(context, part, staged)).length > 0) throw justModified(snapshot)
  if (caches.length > 0)
    tools.log.info(`Bytecode caches in ${snapshot} that were not installed, and are not restored: ${caches.length}.`)
  tools.log.info(`${snapshot} was moved out of the snapshots, to be restored.`)
  return { ...facts, staged, recorded, replaced }
}

/**
 * Moves a restored snapshot's own copies of kept paths to the snapshot of the replaced version or, if the part had been
 * removed, to that of the removed part. The restored version got the host's current copies from that snapshot. Throws
 * DeploymentError `step_failed` if another process has removed the replaced version: without it, the snapshot's copies
 * may be the only ones.
 */
export async function keepReplaced(context: StepContext, part: ReturningPart): Promise<void> {
  const { deployment, transaction, stagingFolder, results } = context
  const { layout, tools } = deployment
  const name = results.get(placeName(part))?.snapshot
  const keeper = name === undefined ? part.leftBehind : join(snapshotsPath(layout, part), name)
  if (keeper === undefined && part.replaced.length > 0) throw justDisappeared(placePath(part))
  if (keeper === undefined) return
  for (const path of part.replaced) {
    const [from, to] = [join(replacedFolder(stagingFolder, part), path), join(keeper, path)]
    await transaction.apply([{ type: 'move', from: relative(layout.root, from), to: relative(layout.root, to) }])
    tools.log.notice(
      `The restored snapshot also contained ${path}, which is the host's own: the host keeps its current copy, and the snapshot's copy was moved to ${to}.`,
    )
  }
}

async function listCaches({ deployment }: StepContext, part: RetainedPart, root: string): Promise<string[]> {
  const { layout, tools } = deployment
  const record = [...(readTreeRecord(layout, part.retained) ?? [])]
  const caches = await findStrayCaches({ root, keepPaths: part.keepPaths }, record, tools.signal)
  if (caches === undefined)
    throw new DeploymentError(
      'snapshot_modified',
      `${pathOf(layout, part)} has too many bytecode caches that were not installed, so this snapshot is not used. Remove the files that were not installed from its __pycache__ directories, or name another version in to-version.`,
    )
  return caches
}

async function moveKeptAway(context: StepContext, part: RetainedPart, snapshot: string): Promise<string[]> {
  const { layout } = context.deployment
  const path = installPath(layout, part)
  const keeper = pathExistsSync(path) ? path : part.leftBehind
  if (keeper === undefined) return []
  const kept = findKeptPaths({ root: keeper, keepPaths: keptIn(context.deployment, part) }, snapshot)
  const both = kept.filter(inner => pathExistsSync(join(snapshot, inner)))
  await moveAway(context, { part, folder: 'replaced', snapshot }, both)
  return both
}

/** Returns the path of the snapshot before it is moved; a rollback moves it back to this path. */
function pathOf(layout: Layout, part: RetainedPart): string {
  return join(snapshotsPath(layout, part), part.retained.name)
}

interface Leaving {
  readonly part: RetainedPart
  readonly snapshot: string
  /** The folder's name in the staging folder. */
  readonly folder: 'replaced' | 'dropped'
}

/** Moves these paths of a snapshot to the staging folder. */
async function moveAway(
  { deployment, transaction, stagingFolder }: StepContext,
  { part, snapshot, folder }: Leaving,
  paths: readonly string[],
): Promise<void> {
  const { root } = deployment.layout
  for (const inner of paths) {
    const [from, to] = [join(snapshot, inner), join(stagingFolder, folder, placeName(part), inner)]
    await makeFolders(stagingFolder, dirname(to))
    await transaction.apply([{ type: 'move', from: relative(root, from), to: relative(root, to) }])
  }
}

function replacedFolder(stagingFolder: string, part: ReturningPart): string {
  return join(stagingFolder, 'replaced', placeName(part))
}

/** Creates folders below the staging folder durably, because no other sync follows before a tree is moved into them. */
async function makeFolders(stagingFolder: string, path: string): Promise<void> {
  await syncDirectory(dirname(stagingFolder))
  const parts = relative(stagingFolder, path).split('/')
  for (let depth = 1; depth <= parts.length; depth++)
    await makePrivateDirectories(join(stagingFolder, ...parts.slice(0, depth)))
}

function justModified(snapshot: string): DeploymentError {
  return new DeploymentError(
    'snapshot_modified',
    `${snapshot} was changed while it was being restored, so it is not used. Stop the process that writes to it, or name another version in to-version.`,
  )
}

/** The future place of an installed tree that is replaced or removed. */
export interface NextSnapshot {
  readonly name: string
  /** Absolute. */
  readonly path: string
  readonly move: PlannedMove
}

/**
 * Plans the snapshot of the tree that is installed at a place, named with the next number and `version`. Throws as
 * `requireSwitchable` does, for example if the tree can no longer be moved.
 */
export async function nextSnapshot(
  deployment: Deployment,
  place: Place,
  version: string | null,
): Promise<NextSnapshot> {
  const { layout } = deployment
  requireSwitchable({ layout, keepPathsOf: () => keptIn(deployment, place) }, place)
  const folder = snapshotsPath(layout, place)
  const { installed, removed } = readHostRecord(layout)
  // A snapshot that this deployment restores has left the folder, but its name is still recorded.
  const name = nextSnapshotName(folder, version, findInstalled([...installed, ...removed], place)?.snapshots)
  // These folders belong to this action alone and mean nothing while they are empty, so they need no journal.
  await makePrivateDirectories(dirname(folder))
  await makePrivateDirectories(folder)
  const [from, path] = [installPath(layout, place), join(folder, name)]
  return { name, path, move: { type: 'move', from: relative(layout.root, from), to: relative(layout.root, path) } }
}

/** Logs the new place of a tree that was modified on this host. */
export async function announceModified(deployment: Deployment, place: Place, { path }: NextSnapshot): Promise<void> {
  const drift = await deployment.drift.of(place)
  const from = installPath(deployment.layout, place)
  if (isModified(drift)) deployment.tools.log.info(`${from}, which was changed on this host, is now ${path}.`)
}

type Replacing = Pick<StepContext, 'deployment' | 'stagingFolder' | 'order'>

/**
 * Before an installed tree is moved away, notes and reports how the tree differs from what was installed, in case the
 * run is killed before `identifyReplaced`. Throws only the reason for a cancellation, and file system errors.
 */
export async function noteLeaving(context: Replacing, place: Place): Promise<void> {
  const { deployment } = context
  const drift = await deployment.drift.recent(place)
  await noteDifference(context, { place, root: installPath(deployment.layout, place) }, drift)
}

/**
 * Compares a tree again after it was moved to `root`, because other processes could write to the tree until then. Notes
 * and reports how the tree differs from what was installed. If the tree differs, returns its identity; otherwise returns
 * undefined. The identity is about the installed files, as they are now: nothing vouches for files that were added on
 * this host, so they cannot keep this version from being restored. The identity has no tree digest if the tree is not a
 * directory or, after a warning, if it cannot be read or was not compared although this action installed it. Throws only
 * the reason for a cancellation, and file system errors.
 */
export async function identifyReplaced(
  context: Replacing,
  place: Place,
  root: string,
): Promise<TreeIdentity | undefined> {
  const { layout, tools, drift: check } = context.deployment
  const keepPaths = keptIn(context.deployment, place)
  const before = await check.of(place)
  // Without a snapshot, the tree is removed later: a difference that is not found now is never found.
  const drift = await check.moved(place, { root, isKept: context.order.snapshot })
  if (!isSameDifference(before, drift)) await noteDifference(context, { place, root }, drift)
  const identity = findInstalled(readInstalled(layout), place)
  if (drift === undefined && identity !== undefined) {
    tools.log.warning(
      `${placePath(place)} was not compared with what was installed, so its snapshot counts as modified on this host.`,
    )
    return { tree_digest: null }
  }
  if (!isModified(drift)) return undefined
  if (drift.instead !== undefined || identity === undefined) return { tree_digest: null }
  if (isOnlyAdded(drift)) return identityOf(identity)
  try {
    const record = readTreeRecord(layout, identity) ?? []
    const { items, unread } = await describeTree({ root, keepPaths }, record, tools.signal)
    if (unread.length > 0)
      tools.log.warning(
        `The snapshot of ${placePath(place)} contains changed files whose bytes were not read, so a rollback compares only their size and times: ${listNames(unread)}.`,
      )
    return await writeTreeRecord(layout, items, tools.signal)
  } catch (error) {
    tools.signal.throwIfAborted()
    tools.log.warning(
      `The snapshot of ${placePath(place)} has no record of its files. ${toHostError(error, 'recording these files').message}`,
    )
  }
  return { tree_digest: null }
}

async function noteDifference(
  { deployment, stagingFolder }: Replacing,
  { place, root }: { readonly place: Place; readonly root: string },
  drift: TreeDifference | undefined,
): Promise<void> {
  await recordDrift(deployment, [place])
  if (drift !== undefined) await noteDrift(stagingFolder, { shelf: place.shelf, id: place.id, root }, drift)
}

/**
 * Makes room in a staged tree for the kept paths of the tree `keeper`, and returns these paths. Removes the artifact's
 * own files at these paths. A snapshot's own files at these paths were moved away earlier, and are never removed.
 */
export async function prepareKeptPaths(
  { deployment }: StepContext,
  part: NewPart | ReturningPart,
  keeper: string,
): Promise<string[]> {
  const { layout } = deployment
  const tree = { root: keeper, keepPaths: keptIn(deployment, part) }
  if (keeper === part.leftBehind) requireMovableTree(layout, tree)
  const kept = findKeptPaths(tree, part.staged)
  if (part.recorded === undefined) drop(deployment, part.staged, kept)
  else requireAbsent(part, kept)
  for (const path of kept) await makeParents(part.staged, path)
  return kept
}

function drop({ layout, tools }: Deployment, staged: string, kept: readonly string[]): void {
  for (const path of dropShipped(layout, staged, kept)) {
    tools.log.notice(`The artifact contains ${path}, which is the host's own: the host's copy stays.`)
  }
}

/**
 * Refuses a staged snapshot that still contains one of these paths: the installed version may have created that path
 * only after the snapshot's copies were moved away.
 */
function requireAbsent(part: ReturningPart, kept: readonly string[]): void {
  const late = kept.find(path => pathExistsSync(join(part.staged, path)))
  if (late !== undefined) throw justAppeared(`${placePath(part)}/${late}`)
}

/** Creates a path's parent directories durably, because some of them are created after the sync of the tree. */
async function makeParents(staged: string, path: string): Promise<void> {
  const parts = path.split('/').slice(0, -1)
  for (let depth = 1; depth <= parts.length; depth++) {
    const parent = join(staged, ...parts.slice(0, depth))
    if (pathExistsSync(parent)) continue
    makeOpenDirectorySync(parent)
    await syncDirectory(dirname(parent))
  }
}

/**
 * Warns, in one line, of the paths that stay although `keep-paths` does not name them (see `findStickyPaths`). Throws
 * ConfigError `invalid_input` if such a path is among a plugin's code, or if a version has files of its own at or below
 * it: either the files or the host's copy could be what the operator wants there. Call this function before anything is switched.
 */
export function announceStickyPaths(deployment: Deployment, { parts }: Pick<InstallOrder, 'parts'>): void {
  const { layout, request, tools } = deployment
  const staying = parts.flatMap(part => {
    const named = uniteKeepPaths(
      request.keepPaths,
      part.environment.envFile === undefined ? [] : [part.environment.envFile],
    )
    const paths = deployment.keepPathsOf(part).filter(path => !named.includes(path))
    if (paths.length > 0) {
      requireNotShipped(layout, part, paths)
      requireNotBesideCode(layout, part, paths)
    }
    return paths.map(path => `${placePath(part)}/${path}`)
  })
  if (staying.length === 0) return
  tools.log.warning(
    `keep-paths does not name ${listNames(staying)}, but the last deployment kept this, so it stays on the host. If you need it, add it to keep-paths; if not, remove it by hand.`,
  )
}

function requireNotShipped(layout: Layout, part: Part, paths: readonly string[]): void {
  for (const path of paths) {
    const isKept = isBelow(withListed(treePathOf(layout, part), [path]))
    for (const { path: shipped } of itemsOfPart(layout, part)) {
      if (!isKept(shipped)) continue
      throw new ConfigError(
        'invalid_input',
        `keep-paths does not name ${path}, but the last deployment kept ${installPath(layout, part)}/${path}, and ${part.version} has a file of its own there (${shipped}). Nothing was changed. To keep the host's copy, add ${path} to keep-paths; to install the file of ${part.version}, move the host's copy away first.`,
      )
    }
  }
}

/**
 * Refuses such a path below the directory of a plugin's code: a file there may take the place of a module that the code
 * imports, and only a record that the service can write says that the operator wanted it.
 */
function requireNotBesideCode(layout: Layout, part: Part, paths: readonly string[]): void {
  if (part.shelf !== 'plugins') return
  const code = posix.dirname(readEntryPoint(treePathOf(layout, part)))
  const path = code === '.' ? undefined : paths.find(isBelow([code]))
  if (path === undefined) return
  throw new ConfigError(
    'invalid_input',
    `keep-paths does not name ${path}, but the last deployment kept ${installPath(layout, part)}/${path}, which is among the code of the plugin (${code}). Nothing was changed. To keep it, add ${path} to keep-paths; if not, move it away first.`,
  )
}

function itemsOfPart(layout: Layout, part: Part): Iterable<RecordedItem> {
  if (part.intact === undefined && part.retained === undefined) return itemsOf(part.tree, [])
  return readTreeRecord(layout, part.intact ?? part.retained) ?? []
}

/** Plans the moves of kept paths from one tree into another. `from` and `to` are the absolute paths of the trees. */
export function keptMoves(
  { layout: { root } }: Deployment,
  { from, to }: { readonly from: string; readonly to: string },
  kept: readonly string[],
): PlannedMove[] {
  return kept.map(path => ({
    type: 'move',
    from: relative(root, join(from, path)),
    to: relative(root, join(to, path)),
  }))
}
