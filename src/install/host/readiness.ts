import { randomBytes } from 'node:crypto'
import { accessSync, appendFileSync, constants, type Stats, statSync, truncateSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { type DeployError, DeploymentError, errnoOf } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { asSentence, shellWord } from '../../core/text.ts'
import { makeOpenDirectorySync, makePrivateDirectories } from '../files/durable.ts'
import { toHostError } from '../files/errors.ts'
import { OWN_INODES, requireSpace } from '../files/space.ts'
import { lstatIfPresentSync } from '../files/walk.ts'
import { installPath, type Layout, type Place, reservePath, snapshotsPath } from './layout.ts'
import { type HostAccess, requireOwnDirectory, requireOwnKinds, requireSafeHost } from './ownership.ts'
import { nearestDirectory, requireOneMount, requireSwitchable, type SwitchingHost } from './switchable.ts'

/** Space for our own records. The space for the artifact is checked once its listing is known. */
const MIN_FREE_BYTES = 1024 * 1024

/**
 * Checks a project root without creating anything. A missing root passes. Returns one sentence for each risk that the
 * operator accepts. Throws as `requireSafeHost` and `requireOwnKinds` do, or DeploymentError `host_not_writable` if the
 * root is not a directory.
 */
export function checkRoot(access: HostAccess): string[] {
  const { layout } = access
  const accepted = requireSafeHost(access)
  try {
    if (statIfPresentSync(layout.root)?.isDirectory() === false) throw notADirectory(layout.root)
    requireOwnKinds(layout)
    return accepted
  } catch (error) {
    throw unusableRoot(toHostError(error, `checking ${layout.own}`))
  }
}

/**
 * Prepares a project root for its lock. Creates the root, if its parent exists, and `.hub-deploy/` with its folders,
 * which only this user can access (0700). Touches nothing if `checkRoot` refuses the host. Throws as `checkRoot` does,
 * or DeploymentError `host_not_writable` or `disk_full`.
 */
export async function prepareHost(access: HostAccess, log: Log): Promise<void> {
  const { layout } = access
  checkRoot(access)
  try {
    requireRoot(layout.root, log)
    warnOfOuterRoot(layout, log)
    await makePrivateDirectories(layout.own)
    // Checked again, because another user may meanwhile have created folders that did not exist before.
    requireSafeHost(access)
    requireOwnKinds(layout)
    const { staging, trash, snapshots, trees, reports, outbox } = layout
    await makePrivateDirectories(staging, trash, snapshots, trees, reports, outbox)
    keepReserve(layout)
  } catch (error) {
    throw unusableRoot(toHostError(error, `preparing ${layout.own}`))
  }
}

/**
 * Checks in advance that this run can switch versions in a place. The place's shelf must pass `checkShelf`, and this
 * run must be able to move the place's current content. Throws DeploymentError `host_not_writable` if anything but a
 * directory is at the path for the place's snapshots, or if the current content is a directory that this user cannot
 * write to.
 */
export function checkHost(host: SwitchingHost, place: Place): void {
  const { layout } = host
  checkShelf(layout, place)
  const path = installPath(layout, place)
  try {
    requireOwnDirectory(snapshotsPath(layout, place))
    requireMovable(path)
    requireSwitchable(host, place)
  } catch (error) {
    throw toHostError(error, `checking ${path}`)
  }
}

/**
 * Checks that a shelf is, or can become, a writable directory on the same mount as `.hub-deploy/`, so that one rename
 * switches versions. Also checks that there is space for this action's own records.
 *
 * Throws DeploymentError `host_not_writable` or `disk_full`, or `step_failed` for any other system error.
 */
export function checkShelf(layout: Layout, shelf: ShelfPlace): void {
  try {
    requireWritableShelf(layout, shelf)
    requireOneMount(layout, shelf)
  } catch (error) {
    throw toHostError(error, `checking ${join(layout.root, shelf.directory)}`)
  }
  requireSpace(layout.staging, { sizes: [MIN_FREE_BYTES], inodes: OWN_INODES })
}

/** A directory of parts. */
type ShelfPlace = Pick<Place, 'shelf' | 'directory'>

/** Turns `step_failed` into `host_not_writable`, because no step has begun and the operator must correct the root. */
function unusableRoot(error: DeployError): DeployError {
  if (error.code !== 'step_failed') return error
  return new DeploymentError('host_not_writable', `${asSentence(error.message)} Is project-root the right directory?`, {
    cause: error,
  })
}

function notADirectory(root: string): DeploymentError {
  return new DeploymentError(
    'host_not_writable',
    `project-root ${root} is not a directory. Set it to the directory that contains plugins/ and extensions/.`,
  )
}

function requireRoot(root: string, log: Log): void {
  if (statIfPresentSync(root) !== undefined) return
  if (makeRoot(root))
    log.notice(`project-root ${root} did not exist, so it was created. Is this the first deployment on this host?`)
  else if (statIfPresentSync(root) === undefined) throw leadsNowhere(`project-root ${root}`)
}

/**
 * Warns if a root without deployments is directly inside a root with deployments: the operator may have chosen the
 * inner one by mistake.
 */
function warnOfOuterRoot({ root, own }: Layout, log: Log): void {
  const outer = dirname(root)
  const isNested = lstatIfPresentSync(join(outer, basename(own)))?.isDirectory() === true
  if (!isNested || lstatIfPresentSync(own) !== undefined) return
  log.warning(
    `project-root ${root} has no deployments yet, but it is inside the project root ${outer}, which has deployments. If you mean ${outer}, correct project-root, and remove everything that this run installs in ${root}.`,
  )
}

/** Returns false if the root has just been created by another run, or is a symlink that leads nowhere. */
function makeRoot(root: string): boolean {
  try {
    makeOpenDirectorySync(root)
    return true
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    const why = NOT_MADE.get(errnoOf(error))
    if (why === undefined) throw error
    const owner = `-o ${process.getuid?.()} -g ${process.getgid?.()}`
    throw new DeploymentError(
      'host_not_writable',
      `project-root ${root} does not exist, and ${why}. If the path is right, run this as root: install -d ${owner} -m 755 ${shellWord(root)}`,
      { cause: error },
    )
  }
}

/** Why a root could not be made. */
const NOT_MADE: ReadonlyMap<string | undefined, string> = new Map([
  ['ENOENT', 'neither does its parent directory'],
  ['EACCES', "this runner's user may not create it"],
])

/** Moving a directory to another parent requires write access to the directory itself. */
function requireMovable(place: string): void {
  const found = lstatIfPresentSync(place)
  if (found?.isDirectory()) accessSync(place, constants.W_OK | constants.X_OK)
}

/** Checks the nearest existing directory, in which a missing shelf will be created. */
function requireWritableShelf(layout: Layout, { directory }: ShelfPlace): void {
  const path = nearestDirectory(join(layout.root, directory))
  const found = statIfPresentSync(path)
  if (found === undefined) throw leadsNowhere(path)
  if (!found.isDirectory()) throw new DeploymentError('host_not_writable', `${path} is not a directory. Move it away.`)
  accessSync(path, constants.W_OK | constants.X_OK)
}

function leadsNowhere(path: string): DeploymentError {
  return new DeploymentError(
    'host_not_writable',
    `${path} is a symlink to a directory that does not exist. Correct the symlink, or mount or create that directory.`,
  )
}

function statIfPresentSync(path: string): Stats | undefined {
  try {
    return statSync(path)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  }
}

/** Enough for a lock, the records of a recovery and a report. */
const RESERVE_BYTES = 64 * 1024

/**
 * Reserves an inode and 64 KiB of disk space, if there is room, so that a host whose disk is full can still be locked
 * and recovered.
 */
function keepReserve(layout: Layout): void {
  const path = reservePath(layout)
  const size = lstatIfPresentSync(path)?.size ?? 0
  if (size >= RESERVE_BYTES) return
  try {
    // Random, because a file system could compress anything else to nothing.
    appendFileSync(path, randomBytes(RESERVE_BYTES - size), { mode: 0o600 })
  } catch {
    tryTruncateSync(path, size)
  }
}

function tryTruncateSync(path: string, size: number): void {
  try {
    truncateSync(path, size)
  } catch {
    // There is no reserve.
  }
}
