import { readdirSync, renameSync } from 'node:fs'
import { basename, join } from 'node:path'
import { DeploymentError, toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { ownerOfTemporary } from '../files/durable-files.ts'
import { mountPointsIn } from '../files/mounts.ts'
import { removeTree } from '../files/remove-tree.ts'
import { isAbsent } from '../files/tree-walk.ts'
import { type Installation, readHostRecord, recordInstalled } from './installed.ts'
import type { Layout } from './layout.ts'
import { pidExists } from './process-identity.ts'
import { pruneTreeRecords } from './tree-record.ts'

/**
 * Finishes a commit, and may be repeated until that succeeds: writes the record of what is installed, removes the
 * snapshots that are not retained, then empties the staging folder.
 * Throws only when the record cannot be written; what cannot be removed is a warning. Returns whether every discarded
 * snapshot left the snapshots folder: if not, only a repetition finds it again.
 */
export async function finishCommitted(layout: Layout, log: Log, installation: Installation): Promise<boolean> {
  await recordInstalled(layout, installation)
  let isDone = true
  for (const path of installation.discard) isDone = (await orWarn(log, () => putAside(layout, path))) && isDone
  await cleanStaging(layout, log)
  return isDone
}

/** Empties the staging folder and removes tree records that nothing refers to. The caller holds the lock. */
export async function cleanStaging(layout: Layout, log: Log): Promise<void> {
  for (const name of readdirSync(layout.staging)) {
    await orWarn(log, () => removeTree(join(layout.staging, name)))
  }
  await orWarn(log, () => pruneTreeRecords(layout, usedDigests(layout)))
}

/**
 * Removes the temporary files of processes that no longer exist. Leaves those of the lock alone: its holder has
 * removed those that nobody may still be writing.
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

/** A rename, so that a snapshot is never half removed; the staging folder is emptied again until that succeeds. */
function putAside(layout: Layout, path: string): void {
  try {
    const [mounted] = mountPointsIn(join(layout.root, path))
    if (mounted !== undefined) throw new DeploymentError('unsafe_host', `${mounted} is a mount point: unmount it.`)
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
    log.warning(`Not removed yet; later runs try again: ${toDeployError(error).message}`)
    return false
  }
}
