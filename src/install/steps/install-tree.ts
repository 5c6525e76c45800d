import { dirname, join, relative } from 'node:path'
import type { Log } from '../../core/log.ts'
import { makeOpenDirectory, syncTree } from '../durable-files.ts'
import { dropShipped, findKeptPaths } from '../keep-paths.ts'
import { installPath, type Layout, type Shelf, snapshotsPath } from '../layout.ts'
import { nextSnapshotName } from '../snapshots.ts'
import { hearSignals } from '../time-slice.ts'
import type { Transaction } from '../transaction.ts'
import { type TreeRecord, writeTreeRecord } from '../tree-record.ts'
import { exists } from '../tree-walk.ts'

export interface TreeInstallation {
  layout: Layout
  transaction: Transaction
  log: Log
  shelf: Shelf
  id: string
  /** The new tree, complete, in the staging folder. */
  staged: string
  record: TreeRecord
  previousVersion: string | null
  keepPaths: readonly string[]
  signal: AbortSignal
}

/**
 * Puts a staged tree in its place: makes it and its record durable, moves the old one to the snapshots, carries the kept paths over,
 * moves the new one in. Returns the snapshot's name, or undefined when nothing was in the place.
 */
export async function installTree(installation: TreeInstallation): Promise<string | undefined> {
  const { layout, transaction, shelf, id, staged, signal } = installation
  const place = installPath(layout, shelf, id)
  const kept = await prepareKeptPaths(installation, place)
  await Promise.all([syncTree(staged, signal), recordTree(installation)])
  signal.throwIfAborted()
  if (!(await exists(dirname(place)))) await transaction.apply({ type: 'make_directory', path: shelf })
  const snapshot = (await exists(place)) ? await moveToSnapshot(installation, place) : undefined
  if (snapshot !== undefined) await carryOver(installation, snapshot.path, kept)
  await transaction.apply({ type: 'move', from: relative(layout.root, staged), to: `${shelf}/${id}` })
  return snapshot?.name
}

/** The record is asked for once the sync is under way, which takes its time in a process of its own. */
async function recordTree(installation: TreeInstallation): Promise<void> {
  await hearSignals()
  await writeTreeRecord(installation.layout, installation.record)
}

async function prepareKeptPaths(installation: TreeInstallation, place: string): Promise<string[]> {
  const { staged, keepPaths, log } = installation
  const kept = await findKeptPaths(place, staged, keepPaths)
  for (const path of await dropShipped(staged, kept)) {
    log.notice(`The artifact ships ${path}, which keep-paths names: the host's own stays.`)
  }
  for (const path of kept) await makeParents(staged, path)
  return kept
}

async function makeParents(staged: string, path: string): Promise<void> {
  const parts = path.split('/').slice(0, -1)
  for (let depth = 1; depth <= parts.length; depth++) {
    const parent = join(staged, ...parts.slice(0, depth))
    if (!(await exists(parent))) await makeOpenDirectory(parent)
  }
}

async function moveToSnapshot(installation: TreeInstallation, place: string): Promise<{ name: string; path: string }> {
  const { layout, transaction, shelf, id, previousVersion } = installation
  const name = await nextSnapshotName(layout, shelf, id, previousVersion)
  const path = join(snapshotsPath(layout, shelf, id), name)
  await makeMissingFolders(installation, dirname(path))
  await transaction.apply({ type: 'move', from: relative(layout.root, place), to: relative(layout.root, path) })
  return { name, path }
}

async function makeMissingFolders({ layout, transaction }: TreeInstallation, folder: string): Promise<void> {
  for (const missing of [dirname(folder), folder]) {
    if (!(await exists(missing)))
      await transaction.apply({ type: 'make_directory', path: relative(layout.root, missing) })
  }
}

async function carryOver(installation: TreeInstallation, snapshot: string, kept: readonly string[]): Promise<void> {
  const { layout, transaction, staged } = installation
  for (const path of kept) {
    await transaction.apply({
      type: 'move',
      from: relative(layout.root, join(snapshot, path)),
      to: relative(layout.root, join(staged, path)),
    })
  }
}
