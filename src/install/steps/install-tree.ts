import { dirname, join, relative } from 'node:path'
import type { Log } from '../../core/log.ts'
import { makeOpenDirectorySync, syncTree } from '../files/durable-files.ts'
import { hearSignals } from '../files/time-slice.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { dropShipped, findKeptPaths } from '../host/keep-paths.ts'
import { installPath, type Layout, type Shelf } from '../host/layout.ts'
import { type TreeRecord, writeTreeRecord } from '../host/tree-record.ts'
import type { Transaction } from '../transaction/transaction.ts'
import { moveToSnapshot } from './move-to-snapshot.ts'

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
  /** What holds the kept paths where nothing is in the place; absolute. */
  leftBehind?: string | undefined
  keepPaths: readonly string[]
  signal: AbortSignal
}

/**
 * Puts a staged tree in its place: makes it and its record durable, moves the old one to the snapshots, carries the kept paths over
 * (where there is no old one, out of what was left behind), moves the new one in. Returns the snapshot's name, or undefined
 * when nothing was in the place.
 */
export async function installTree(installation: TreeInstallation): Promise<string | undefined> {
  const { layout, transaction, shelf, id, staged, signal } = installation
  const place = installPath(layout, { shelf, id })
  const leftBehind = pathExistsSync(place) ? undefined : installation.leftBehind
  const kept = await prepareKeptPaths(installation, leftBehind ?? place)
  await Promise.all([syncTree(staged, signal), recordTree(installation)])
  signal.throwIfAborted()
  if (!pathExistsSync(dirname(place))) await transaction.apply({ type: 'make_directory', path: shelf })
  const snapshot = pathExistsSync(place)
    ? await moveToSnapshot(installation, installation, installation.previousVersion)
    : undefined
  const keeper = leftBehind ?? snapshot?.path
  if (keeper !== undefined) await carryOver(installation, keeper, kept)
  await transaction.apply({ type: 'move', from: relative(layout.root, staged), to: `${shelf}/${id}` })
  return snapshot?.name
}

/** The record is asked for once the sync is under way, which takes its time in a process of its own. */
async function recordTree(installation: TreeInstallation): Promise<void> {
  await hearSignals()
  await writeTreeRecord(installation.layout, installation.record)
}

async function prepareKeptPaths(installation: TreeInstallation, keeper: string): Promise<string[]> {
  const { staged, keepPaths, log } = installation
  const kept = findKeptPaths({ root: keeper, keepPaths }, staged)
  for (const path of await dropShipped(staged, kept)) {
    log.notice(`The artifact ships ${path}, which keep-paths names: the host's own stays.`)
  }
  for (const path of kept) makeParents(staged, path)
  return kept
}

function makeParents(staged: string, path: string): void {
  const parts = path.split('/').slice(0, -1)
  for (let depth = 1; depth <= parts.length; depth++) {
    const parent = join(staged, ...parts.slice(0, depth))
    if (!pathExistsSync(parent)) makeOpenDirectorySync(parent)
  }
}

async function carryOver(installation: TreeInstallation, keeper: string, kept: readonly string[]): Promise<void> {
  const { layout, transaction, staged } = installation
  for (const path of kept) {
    await transaction.apply({
      type: 'move',
      from: relative(layout.root, join(keeper, path)),
      to: relative(layout.root, join(staged, path)),
    })
  }
}
