import { accessSync, constants, type Stats, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { type DeployError, DeploymentError, errnoOf } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { asSentence } from '../../core/sentence.ts'
import { makeOpenDirectorySync, makePrivateDirectories } from '../files/durable-files.ts'
import { OWN_INODES, requireSpace } from '../files/space.ts'
import { toHostError } from '../files/system-errors.ts'
import { lstatIfPresentSync } from '../files/trees/tree-walk.ts'
import { installPath, type Layout, type Place, snapshotsPath } from './layout.ts'
import { requireOwnDirectory, requireOwnKinds } from './ownership/own-kinds.ts'
import { type HostAccess, requireSafeHost } from './ownership/ownership.ts'
import { keepReserve } from './reserve.ts'
import { nearestDirectory, requireOneMount, requireSwitchable, type SwitchingHost } from './switchable.ts'

/** Space for our own records; the artifact's need is checked when its listing is known. */
const MIN_FREE_BYTES = 1024 * 1024

/**
 * Makes a project root ready to be locked: the root itself (if its parent exists), and `.hub-deploy/` with its folders,
 * 0700, ours alone. Touches nothing that `requireSafeHost` refuses, and logs a warning for each risk that it accepts.
 *
 * Throws UntouchableHostError, or DeploymentError `host_not_writable` or `disk_full`.
 */
export async function prepareHost(access: HostAccess, log: Log): Promise<void> {
  const { layout } = access
  for (const accepted of requireSafeHost(access)) log.warning(accepted)
  try {
    requireRoot(layout.root, log)
    warnOfOuterRoot(layout, log)
    await makePrivateDirectories(layout.own)
    // Another user may have created folders that did not exist before.
    requireSafeHost(access)
    requireOwnKinds(layout)
    await makePrivateDirectories(layout.staging, layout.snapshots, layout.trees, layout.reports, layout.outbox)
    keepReserve(layout)
  } catch (error) {
    throw unusableRoot(toHostError(error, `preparing ${layout.own}`))
  }
}

/**
 * Checks, before anything is fetched, that this run can switch versions in a place: that its shelf passes `checkShelf`,
 * and that its present content can be moved. Throws DeploymentError `host_not_writable`, `unsafe_host` or `disk_full`.
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

/** Does the same for the present place of a part and its target; once if they are equal. */
export function checkPlaces(host: SwitchingHost, present: Place, target: Place): void {
  if (installPath(host.layout, present) !== installPath(host.layout, target)) checkHost(host, present)
  checkHost(host, target)
}

/**
 * Checks that a shelf is, or can become, a writable directory in the same mount as `.hub-deploy/`, so that a switch is
 * one rename, and that some space is free.
 *
 * Throws DeploymentError `host_not_writable` or `disk_full`.
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
export type ShelfPlace = Pick<Place, 'shelf' | 'directory'>

/** If our folder cannot be created, the operator always has to fix the root. */
function unusableRoot(error: DeployError): DeployError {
  if (error.code !== 'step_failed') return error
  return new DeploymentError('host_not_writable', `${asSentence(error.message)} Is project-root the right directory?`, {
    cause: error,
  })
}

function requireRoot(root: string, log: Log): void {
  const found = statIfPresentSync(root)
  if (found?.isDirectory()) return
  if (found !== undefined) {
    throw new DeploymentError(
      'host_not_writable',
      `project-root ${root} is not a directory. Set it to the directory that contains plugins/ and extensions/.`,
    )
  }
  makeRoot(root)
  log.notice(`project-root ${root} did not exist, so it was created. Is this the first deployment on this host?`)
}

/** On a host with deployments, an operator may name a directory of its project root by mistake. */
function warnOfOuterRoot({ root, own }: Layout, log: Log): void {
  const outer = dirname(root)
  const isNested = lstatIfPresentSync(join(outer, basename(own)))?.isDirectory() === true
  if (!isNested || lstatIfPresentSync(own) !== undefined) return
  log.warning(
    `project-root ${root} has no deployments yet, but it is a directory of the project root ${outer}, which has some. If you mean that one, correct project-root, and remove what this run installs in ${root}.`,
  )
}

function makeRoot(root: string): void {
  try {
    makeOpenDirectorySync(root)
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return
    if (errnoOf(error) !== 'ENOENT') throw error
    throw new DeploymentError(
      'host_not_writable',
      `Neither project-root ${root} nor its parent directory exists. Create it, or correct the path.`,
    )
  }
}

/** A move of a directory to another parent needs write access to the directory itself. */
function requireMovable(place: string): void {
  const found = lstatIfPresentSync(place)
  if (found?.isDirectory()) accessSync(place, constants.W_OK | constants.X_OK)
}

/** A missing directory is made in the nearest one above it. */
function requireWritableShelf(layout: Layout, { directory }: ShelfPlace): void {
  const path = nearestDirectory(join(layout.root, directory))
  if (statIfPresentSync(path)?.isDirectory() !== true)
    throw new DeploymentError('host_not_writable', `${path} is not a directory. Move it away.`)
  accessSync(path, constants.W_OK | constants.X_OK)
}

function statIfPresentSync(path: string): Stats | undefined {
  try {
    return statSync(path)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  }
}
