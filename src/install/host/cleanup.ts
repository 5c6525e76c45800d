import { readdirSync, renameSync } from 'node:fs'
import { basename, join } from 'node:path'
import { toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { ownerOfTemporary } from '../files/durable-files.ts'
import { removeTree } from '../files/remove-tree.ts'
import { isAbsent } from '../files/tree-walk.ts'
import { type Installation, readHostRecord, recordInstalled } from './installed.ts'
import type { Layout } from './layout.ts'
import { pidExists } from './process-identity.ts'
import { pruneTreeRecords } from './tree-record.ts'

/**
 * What follows a commit, and may be repeated until it is done: the record of what is installed, then the removal of the
 * snapshots that are not retained, then the staging folder.
 * Throws only when the record cannot be written; what cannot be removed is a warning. Returns whether every snapshot that
 * goes was at least put aside: if not, only a repetition of this finds it again.
 */
export async function finishCommitted(
  layout: Layout,
  log: Log,
  { rows, removed, discard }: Installation,
): Promise<boolean> {
  await recordInstalled(layout, rows, removed)
  let isDone = true
  for (const path of discard) isDone = (await orWarn(log, () => putAside(layout, path))) && isDone
  await cleanStaging(layout, log)
  return isDone
}

/** Removes everything in the staging folder and the tree records that nothing names; only who holds the lock may. */
export async function cleanStaging(layout: Layout, log: Log): Promise<void> {
  for (const name of readdirSync(layout.staging)) {
    await orWarn(log, () => removeTree(join(layout.staging, name)))
  }
  await orWarn(log, () => pruneTreeRecords(layout, usedDigests(layout)))
}

/**
 * Removes what killed processes were just writing: files with a temporary name of a process that is no more. Those of
 * the lock are left to `removeDeadMarks`, because who waits for it may be a process that this one cannot see.
 */
export async function removeStrayTemporaries(layout: Layout, log: Log): Promise<void> {
  for (const folder of [layout.own, layout.trees, layout.reports, layout.outbox]) {
    for (const name of readdirSync(folder)) {
      const owner = ownerOfTemporary(name)
      if (owner === undefined || pidExists(owner) || name.startsWith(`${basename(layout.lock)}.`)) continue
      await orWarn(log, () => removeTree(join(folder, name)))
    }
  }
}

/** By a rename, so that a snapshot is there whole or not at all, and a removal that fails is tried again with the staging folder. */
function putAside(layout: Layout, path: string): void {
  try {
    renameSync(join(layout.root, path), join(layout.staging, `discarded-${path.split('/').slice(-3).join('-')}`))
  } catch (error) {
    if (!isAbsent(error)) throw error
  }
}

function usedDigests(layout: Layout): Set<string> {
  const { installed, removed } = readHostRecord(layout)
  const versions = [...installed, ...[...installed, ...removed].flatMap(row => row.snapshots)]
  return new Set(versions.flatMap(version => version.tree_digest ?? []))
}

async function orWarn(log: Log, act: () => void | Promise<void>): Promise<boolean> {
  try {
    await act()
    return true
  } catch (error) {
    log.warning(`Not removed yet, later runs try again: ${toDeployError(error).message}`)
    return false
  }
}
