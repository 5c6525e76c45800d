import { readdirSync, renameSync, rmdirSync, unlinkSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { DeploymentError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { makePrivateDirectories, ownerOfTemporary, syncDirectory } from '../files/durable.ts'
import { toHostError } from '../files/errors.ts'
import { mountPointsIn } from '../files/space.ts'
import { lstatIfPresentSync, pathExistsSync } from '../files/walk.ts'
import { type Layout, SET_ASIDE, stagingPath } from '../host/layout.ts'
import { requireSafeHost, UntouchableHostError } from '../host/ownership.ts'
import { pidExists } from '../host/process-identity.ts'
import { type Installation, readHostRecord, recordDiscarded, recordInstalled } from '../host/record.ts'
import { ASIDE_STAGING, findExpiredAside, nextAsidePath, type RetentionRule } from '../host/snapshots.ts'
import { removeStandInSync } from '../host/stand-in.ts'
import { emptyTrash, moveToTrash } from '../host/trash.ts'
import type { HostContext } from '../reports/host.ts'
import { pruneTreeRecords, type TreeIdentity } from '../trees/record.ts'

/** One hour: far longer than writing one file takes. */
const LONGEST_WRITE_MS = 3_600_000

/** A host, and the log for what could not be cleaned up. */
interface CleanedHost {
  readonly layout: Layout
  readonly log: Log
}

/**
 * Finishes a commit. The call may be repeated until it succeeds. Writes the record of the installed parts. Moves the
 * snapshots that are not retained to the trash.
 *
 * Throws only if the record cannot be read or written; logs a warning for a snapshot that cannot be moved.
 * Returns true if every discarded snapshot has left the snapshots folder or is recorded for later runs. After false,
 * only another call moves or records the remaining snapshots.
 */
export async function finishCommitted({ layout, log }: CleanedHost, installation: Installation): Promise<boolean> {
  await recordInstalled(layout, installation)
  const left = await discardSnapshots(layout, log, installation.discard)
  const isRecorded = left.length === 0 || (await orWarn(log, async () => await noteDiscarded(layout, left)))
  return isRecorded
}

/**
 * Moves what was set aside long ago to the trash. Logs a warning for anything
 * that cannot be moved: a later run finds it again. Never throws. The caller holds the lock.
 */
export async function pruneAside({ layout, log }: CleanedHost, rule: RetentionRule): Promise<void> {
  await orWarn(log, async () => {
    for (const path of findExpiredAside(layout.root, rule)) {
      log.info(`${path} will be removed: it was set aside at least 30 days ago, and keep-snapshots is ${rule.limit}.`)
      await orWarn(log, async () => await discardTree(layout, path))
    }
  })
}

/**
 * Tries again to remove the snapshots that earlier runs could not remove. The snapshots stay recorded until they are
 * gone. Logs a warning for each failure. The caller holds the lock.
 */
export async function retryDiscarded(layout: Layout, log: Log): Promise<void> {
  const before = discardedIn(layout)
  await orWarn(log, async () => {
    const left = await discardSnapshots(layout, log, before)
    if (left.length < before.length) await recordDiscarded(layout, left)
  })
}

/** Returns no paths if the record cannot be read: the code that needs the record reports the error. */
function discardedIn(layout: Layout): readonly string[] {
  try {
    return readHostRecord(layout).discard
  } catch {
    return []
  }
}

/** Moves snapshots out of the snapshots folder; returns those that could not be moved. */
async function discardSnapshots(layout: Layout, log: Log, paths: readonly string[]): Promise<string[]> {
  const left: string[] = []
  for (const path of paths) if (!(await orWarn(log, async () => await discardTree(layout, path)))) left.push(path)
  return left
}

async function noteDiscarded(layout: Layout, left: readonly string[]): Promise<void> {
  await recordDiscarded(layout, [...new Set([...readHostRecord(layout).discard, ...left])])
}

/**
 * Moves a deployment's staging folder, which the journal no longer needs, to the trash. Before that, removes what the
 * deployment may have left in a shelf (see `removeStandInSync`). The rename is durable on return,
 * also if an earlier call made it: after a power cut, the old name without a journal would look like the staging folder
 * of a run that was never recovered. Throws the system's error if the folder cannot be moved.
 */
export async function discardStaging(layout: Layout, deploymentId: string): Promise<void> {
  removeStandInSync(stagingPath(layout, deploymentId))
  await makeTrash(layout)
  moveToTrash(layout, stagingPath(layout, deploymentId), deploymentId)
  for (const folder of [layout.trash, layout.staging]) await syncDirectory(folder)
}

/**
 * Empties the staging folder and removes tree records that nothing refers to. Removes only empty folders. Moves the
 * staging folder of a deployment without a journal to `set-aside`, because that folder may contain this host's own
 * files.
 *
 * The caller holds the lock, and no journal needs a staged file.
 */
export async function cleanStaging(layout: Layout, log: Log): Promise<void> {
  for (const name of readdirSync(layout.staging)) await orWarn(log, () => setStagingAside(layout, log, name))
  await orWarn(log, () => pruneTreeRecords(layout, usedTrees(layout)))
}

/**
 * Removes what this and earlier runs moved to the trash. Every run calls this at its end, without the lock, so that no
 * other run has to wait. Does nothing on a host that must not be touched. Stops when the run is cancelled, and leaves the
 * rest to the next run. Never throws: logs a warning about anything that stays.
 */
export async function removeTrash(host: HostContext, signal: AbortSignal = host.grace.cancelled): Promise<void> {
  try {
    requireSafeHost(host)
    await emptyTrash(host.layout, signal)
  } catch (error) {
    if (!signal.aborted && !(error instanceof UntouchableHostError)) warnOfRest(host.log, error)
  }
}

/**
 * Removes the temporary files of processes that no longer exist, and those that are older than an hour. Also removes
 * those with the id of this process, which is writing none at this time. Leaves the lock's temporary files alone,
 * because the holder of the lock has already removed those that no process could still be writing.
 */
export async function removeStrayTemporaries(layout: Layout, log: Log): Promise<void> {
  for (const folder of [layout.own, layout.trees, layout.reports, layout.outbox]) {
    for (const name of readdirSync(folder)) {
      const owner = ownerOfTemporary(name)
      if (owner === undefined || name.startsWith(`${basename(layout.lock)}.`)) continue
      const found = lstatIfPresentSync(join(folder, name))
      // This action creates no directory with a temporary name.
      if (found?.isFile() && !mayBeWriting(owner, found.mtimeMs))
        await orWarn(log, () => unlinkSync(join(folder, name)))
    }
  }
}

/**
 * False for this process, which is writing no temporary file at this time. The age counts, because a process in another
 * container may have had the same id as a process that exists here.
 */
function mayBeWriting(pid: number, writtenAtMs: number): boolean {
  return pid !== process.pid && pidExists(pid) && Date.now() - writtenAtMs < LONGEST_WRITE_MS
}

/**
 * Moves a snapshot, or files that were set aside, to the trash with one rename, so that no tree is ever half removed. The
 * trash gives it a random name, because a name made from the id and the version could be too long. The rename is durable
 * on return, because afterwards no record names the tree.
 */
async function discardTree(layout: Layout, path: string): Promise<void> {
  const tree = join(layout.root, path)
  if (!pathExistsSync(dirname(tree))) return
  const [mounted] = mountPointsIn(tree)
  if (mounted !== undefined) throw new DeploymentError('unsafe_host', `${mounted} is a mount point: unmount it.`)
  await makeTrash(layout)
  moveToTrash(layout, tree)
  for (const folder of [layout.trash, dirname(tree)]) await syncDirectory(folder)
}

/** An operator who needs space may have removed the whole folder, and a recovery prepares no host. */
async function makeTrash({ trash }: Layout): Promise<void> {
  await makePrivateDirectories(trash)
}

/**
 * Moves a staging folder to `set-aside`, with a warning. Removes the folder instead if it is empty: a run that was
 * killed before staging anything leaves an empty folder.
 */
async function setStagingAside(layout: Layout, log: Log, name: string): Promise<void> {
  const path = join(layout.staging, name)
  removeStandInSync(path)
  if (tryRemoveEmptySync(path)) return
  await makePrivateDirectories(join(layout.root, SET_ASIDE))
  const aside = join(layout.root, nextAsidePath(layout.root, `${ASIDE_STAGING}${name}`.slice(0, 200)))
  renameSync(path, aside)
  log.warning(
    `The files that a deployment had staged are now in ${aside}. They may include kept paths that are missing from an installed directory: move those back, then remove ${aside}.`,
  )
}

function tryRemoveEmptySync(path: string): boolean {
  try {
    rmdirSync(path)
    return true
  } catch {
    return false
  }
}

function usedTrees(layout: Layout): TreeIdentity[] {
  const { installed, removed } = readHostRecord(layout)
  return [...installed, ...[...installed, ...removed].flatMap(row => row.snapshots)]
}

/** Logs a warning if a cleanup fails, because later runs continue it. Returns whether it succeeded. */
export async function orWarn(log: Log, act: () => void | Promise<void>): Promise<boolean> {
  try {
    await act()
    return true
  } catch (error) {
    warnOfRest(log, error)
    return false
  }
}

function warnOfRest(log: Log, error: unknown): void {
  log.warning(`The cleanup is not complete; later runs continue it: ${toHostError(error, 'cleaning up').message}`)
}
