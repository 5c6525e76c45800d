import { constants } from 'node:fs'
import { join } from 'node:path'
import { type DeployError, DeploymentError, errnoOf } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { access, chmod, stat } from '../files/direct-fs.ts'
import { makeOpenDirectory, makePrivateDirectories } from '../files/durable-files.ts'
import { requireSpace } from '../files/space.ts'
import { toHostError } from '../files/system-errors.ts'
import { exists, statOf } from '../files/tree-walk.ts'
import { installPath, type Layout, type Shelf } from './layout.ts'
import { keepReserve } from './reserve.ts'

/** Room for our own records; the artifact's own need is checked when its listing is known. */
const MIN_FREE_BYTES = 1024 * 1024

/**
 * Makes a project root ready to be locked: the root itself (when its parent exists), and `.hub-deploy/` with its
 * folders, 0700, ours alone. Throws DeploymentError `host_not_writable` or `disk_full`.
 */
export async function prepareHost(layout: Layout, log: Log): Promise<void> {
  try {
    await requireRoot(layout.root, log)
    await requireOwnFolder(layout.own)
    await makePrivateDirectories(layout.staging, layout.snapshots, layout.trees, layout.reports, layout.outbox)
    await keepReserve(layout)
  } catch (error) {
    throw unusableRoot(toHostError(error, `preparing ${layout.own}`))
  }
}

/**
 * Checks, before anything is fetched, that this run can switch what is in a place: its shelf as `checkShelf` does, and
 * what is in the place can be moved. Throws DeploymentError `host_not_writable` or `disk_full`.
 */
export async function checkHost(layout: Layout, shelf: Shelf, id: string): Promise<void> {
  await checkShelf(layout, shelf)
  const place = installPath(layout, shelf, id)
  await requireMovable(place).catch(error => {
    throw toHostError(error, `checking ${place}`)
  })
}

/**
 * Checks that a shelf is, or can become, a writable directory on the same file system as `.hub-deploy/`, so that a switch
 * is a rename, and that some space is free (the artifact's own need is checked as soon as it is known).
 * Throws DeploymentError `host_not_writable` or `disk_full`.
 */
export async function checkShelf(layout: Layout, shelf: Shelf): Promise<void> {
  await requireSwitchableShelf(layout, shelf).catch(error => {
    throw toHostError(error, `checking ${join(layout.root, shelf)}`)
  })
  await requireSpace(layout.staging, MIN_FREE_BYTES)
}

/** Whatever is odd about a root in which our folder cannot be made, it is the root that has to be mended. */
function unusableRoot(error: DeployError): DeployError {
  if (error.code !== 'step_failed') return error
  return new DeploymentError('host_not_writable', `${error.message} Is project-root the right directory?`, {
    cause: error,
  })
}

async function requireRoot(root: string, log: Log): Promise<void> {
  const found = await stat(root).catch(error => {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  })
  if (found?.isDirectory()) return
  if (found !== undefined) {
    throw new DeploymentError(
      'host_not_writable',
      `project-root ${root} is not a directory: name the directory that holds plugins/ and extensions/.`,
    )
  }
  await makeOpenDirectory(root).catch(error => {
    if (errnoOf(error) === 'EEXIST') return
    if (errnoOf(error) !== 'ENOENT') throw error
    throw new DeploymentError(
      'host_not_writable',
      `project-root ${root} does not exist, nor does its parent: create it, or correct the path.`,
    )
  })
  log.notice(`project-root ${root} did not exist and was created: is this the first deployment on this host?`)
}

/** Who can write in `.hub-deploy/` decides what a recovery does, so it must be a real directory of ours that no one else can enter. */
async function requireOwnFolder(own: string): Promise<void> {
  await makePrivateDirectories(own)
  const found = await statOf(own)
  if (found === undefined || !found.isDirectory()) {
    throw new DeploymentError(
      'host_not_writable',
      `${own} is not a directory: remove what is there; this action keeps its records in it.`,
    )
  }
  const uid = process.getuid?.()
  if (uid !== undefined && Number(found.uid) !== uid) {
    throw new DeploymentError(
      'host_not_writable',
      `${own} belongs to uid ${found.uid}, this runner works as uid ${uid}: let one user deploy to this project root, or change the owner of that directory.`,
    )
  }
  if ((Number(found.mode) & 0o077) !== 0) await chmod(own, 0o700)
}

/** A directory is moved to another parent only by who may write in it. */
async function requireMovable(place: string): Promise<void> {
  const found = await statOf(place)
  if (found?.isDirectory()) await access(place, constants.W_OK | constants.X_OK)
}

async function requireSwitchableShelf(layout: Layout, shelf: Shelf): Promise<void> {
  const path = join(layout.root, shelf)
  const found = await stat(path).catch(error => {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  })
  if (found === undefined && !(await exists(path))) return access(layout.root, constants.W_OK | constants.X_OK)
  if (found === undefined || !found.isDirectory())
    throw new DeploymentError('host_not_writable', `${path} is not a directory: remove what is there.`)
  await access(path, constants.W_OK | constants.X_OK)
  if (found.dev !== (await stat(layout.own)).dev) {
    throw new DeploymentError(
      'host_not_writable',
      `${path} is on another file system than ${layout.own}, so that a switch could not be one rename: put both on one file system.`,
    )
  }
}
