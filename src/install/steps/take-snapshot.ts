import { dirname, join, relative } from 'node:path'
import { DeploymentError } from '../../core/errors.ts'
import { makePrivateDirectories, syncDirectory } from '../files/durable-files.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { compareRecorded } from '../host/drift.ts'
import { isModified } from '../host/drift-check.ts'
import { findKeptPaths } from '../host/keep-paths.ts'
import { installPath, placeName, snapshotsPath } from '../host/layout.ts'
import { requireMovableTree } from '../host/switchable.ts'
import { identityOf } from '../host/tree-record.ts'
import type { RetainedPart, ReturningPart } from './part.ts'
import type { StepContext } from './step-context.ts'

/**
 * Moves a snapshot to the staging folder, from where it returns into its place, and compares it with its record once
 * more: from here on only a process that has a file of it open can change it. What it contains of the kept paths
 * that the installed version has is moved away before. All of it is undone by moves. Throws DeploymentError `snapshot_modified` or `unsafe_host`.
 */
export async function takeSnapshot(context: StepContext, part: RetainedPart): Promise<ReturningPart> {
  const { deployment, transaction, stagingFolder } = context
  const { layout, tools } = deployment
  const { retained, ...facts } = part
  const snapshot = join(snapshotsPath(layout, part), retained.name)
  const staged = join(stagingFolder, 'restored', placeName(part))
  requireMovableTree(layout, { root: snapshot, keepPaths: part.keepPaths })
  const replaced = await moveKeptAway(context, part, snapshot)
  await makeFolders(stagingFolder, dirname(staged))
  await transaction.apply({ type: 'move', from: relative(layout.root, snapshot), to: relative(layout.root, staged) })
  const recorded = identityOf(retained)
  const tree = { root: staged, keepPaths: part.keepPaths, identity: recorded }
  const difference = await compareRecorded(layout, tree, { signal: tools.signal })
  if (difference === undefined || isModified(difference)) throw justModified(snapshot)
  tools.log.info(`${snapshot} is taken from the snapshots.`)
  return { ...facts, staged, recorded, replaced }
}

/**
 * Gives the host's own files that a restored snapshot had contained to the snapshot, or to the removed part's, from which
 * the restored version has got its own.
 */
export async function keepReplaced(context: StepContext, part: ReturningPart): Promise<void> {
  const { deployment, transaction, stagingFolder, results } = context
  const { layout, tools } = deployment
  const name = results.get(placeName(part))?.snapshot
  const keeper = name === undefined ? part.leftBehind : join(snapshotsPath(layout, part), name)
  if (keeper === undefined) return
  for (const path of part.replaced) {
    const [from, to] = [join(replacedFolder(stagingFolder, part), path), join(keeper, path)]
    await transaction.apply({ type: 'move', from: relative(layout.root, from), to: relative(layout.root, to) })
    tools.log.notice(
      `The snapshot had a ${path} of its own, which keep-paths names: the host's present one stays, and that is now ${to}.`,
    )
  }
}

async function moveKeptAway(
  { deployment, transaction, stagingFolder }: StepContext,
  part: RetainedPart,
  snapshot: string,
): Promise<string[]> {
  const { layout, request } = deployment
  const path = installPath(layout, part)
  const keeper = pathExistsSync(path) ? path : part.leftBehind
  if (keeper === undefined) return []
  const kept = findKeptPaths({ root: keeper, keepPaths: request.keepPaths }, snapshot)
  const both = kept.filter(inner => pathExistsSync(join(snapshot, inner)))
  for (const inner of both) {
    const [from, to] = [join(snapshot, inner), join(replacedFolder(stagingFolder, part), inner)]
    await makeFolders(stagingFolder, dirname(to))
    await transaction.apply({ type: 'move', from: relative(layout.root, from), to: relative(layout.root, to) })
  }
  return both
}

function replacedFolder(stagingFolder: string, part: RetainedPart | ReturningPart): string {
  return join(stagingFolder, 'replaced', placeName(part))
}

/** Durable, from the staging folder on: no other sync follows before something is moved there. */
async function makeFolders(stagingFolder: string, path: string): Promise<void> {
  await syncDirectory(dirname(stagingFolder))
  const parts = relative(stagingFolder, path).split('/')
  for (let depth = 1; depth <= parts.length; depth++)
    await makePrivateDirectories(join(stagingFolder, ...parts.slice(0, depth)))
}

function justModified(snapshot: string): DeploymentError {
  return new DeploymentError(
    'snapshot_modified',
    `${snapshot} has been changed while it was being restored: nothing of it is used. Stop the process that writes there, or name another version in to-version.`,
  )
}
