import { dirname, join, relative } from 'node:path'
import { DeploymentError } from '../../../core/errors.ts'
import { makePrivateDirectories, syncDirectory } from '../../files/durable-files.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { findKeptPaths } from '../../host/keep-paths.ts'
import { installPath, type Layout, placeName, snapshotsPath } from '../../host/layout.ts'
import { requireMovableTree } from '../../host/switchable.ts'
import { compareRecorded } from '../../host/trees/drift.ts'
import { isModified } from '../../host/trees/drift-check.ts'
import { readTreeRecord } from '../../host/trees/record/read-tree-record.ts'
import { identityOf } from '../../host/trees/record/tree-identity.ts'
import { findStrayCaches } from '../../host/trees/stray-caches.ts'
import type { RetainedPart, ReturningPart } from '../parts/part.ts'
import type { StepContext } from '../step-context.ts'

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
  const isChanged = difference === undefined || isModified(difference)
  if (isChanged || (await listCaches(context, part, staged)).length > 0) throw justModified(snapshot)
  if (caches.length > 0)
    tools.log.info(`Bytecode caches in ${snapshot} that were not installed, and are not restored: ${caches.length}.`)
  tools.log.info(`${snapshot} was moved out of the snapshots, to be restored.`)
  return { ...facts, staged, recorded, replaced }
}

/**
 * Moves a restored snapshot's own copies of kept paths to the snapshot of the replaced version or, if the part had been
 * removed, to that of the removed part. The restored version got the host's current copies from that snapshot.
 */
export async function keepReplaced(context: StepContext, part: ReturningPart): Promise<void> {
  const { deployment, transaction, stagingFolder, results } = context
  const { layout, tools } = deployment
  const name = results.get(placeName(part))?.snapshot
  const keeper = name === undefined ? part.leftBehind : join(snapshotsPath(layout, part), name)
  if (keeper === undefined) return
  for (const path of part.replaced) {
    const [from, to] = [join(replacedFolder(stagingFolder, part), path), join(keeper, path)]
    await transaction.apply([{ type: 'move', from: relative(layout.root, from), to: relative(layout.root, to) }])
    tools.log.notice(
      `The restored snapshot also contained ${path}, which keep-paths names: the host keeps its current copy, and the snapshot's copy was moved to ${to}.`,
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
  const { layout, keepPaths } = context.deployment
  const path = installPath(layout, part.previous.place)
  const keeper = pathExistsSync(path) ? path : part.leftBehind
  if (keeper === undefined) return []
  const kept = findKeptPaths({ root: keeper, keepPaths }, snapshot)
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
