import { accessSync, constants, mkdirSync, readdirSync, realpathSync, renameSync, statfsSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { listFirst } from '../../core/quantities.ts'
import { mountPointsIn } from '../files/mounts.ts'
import { withDirectorySync } from '../files/open-directory.ts'
import { isAbsent, lstatIfPresentSync, pathExistsSync } from '../files/trees/tree-walk.ts'
import { type HostTree, presentPaths } from './keep-paths.ts'
import { installPath, type Layout, type Place, renameProbePath } from './layout.ts'

/** The directory that is always in the target of the renames that must fail. */
const FULL = 'full'
/** The most names in one message. */
const MAX_NAMED = 5
const OVERLAY_MAGIC = 0x794c7630

/** A host, and the paths that a deployment must keep there. */
export interface SwitchingHost {
  readonly layout: Layout
  readonly keepPaths: readonly string[]
}

/**
 * Checks that the content of a place can be switched by renames: it contains no mount point, and the system lets this
 * run move it and the kept paths in it. Changes nothing. Throws DeploymentError `unsafe_host`, which says what to do.
 */
export function requireSwitchable({ layout, keepPaths }: SwitchingHost, place: Place): void {
  requireMovableTree(layout, { root: installPath(layout, place), keepPaths })
}

/** The same for any tree of this host, for example a snapshot whose kept paths return. */
export function requireMovableTree(layout: Layout, { root, keepPaths }: HostTree): void {
  if (!pathExistsSync(root)) return
  requireNoMountPoint(root)
  const paths = ['', ...presentPaths(root, keepPaths)]
  for (const path of paths) requireMovable({ root, path }, irreplaceable(layout))
}

/**
 * Checks that a shelf, the staging folder and the snapshots are in one mount, because no rename crosses mounts, not
 * even bind mounts. Throws DeploymentError `host_not_writable`.
 */
export function requireOneMount(layout: Layout, { shelf, directory }: Pick<Place, 'shelf' | 'directory'>): void {
  const path = nearestDirectory(join(layout.root, directory))
  const snapshots = nearestDirectory(join(layout.snapshots, shelf))
  for (const folder of [layout.staging, snapshots]) {
    if (mountOf(path) === mountOf(folder)) continue
    throw new DeploymentError(
      'host_not_writable',
      `${path} is on another file system or mount than ${folder}, so versions could not be switched by one rename. Mount both together, at the project root or above it.`,
    )
  }
}

function requireNoMountPoint(root: string): void {
  const [point] = mountPointsIn(root)
  if (point === undefined) return
  throw new DeploymentError(
    'unsafe_host',
    `${point} is a mount point at or below ${root}, which a deployment replaces: its volume would move with the old version. Nothing was changed. Mount it elsewhere, make the path in ${root} a symlink to it, and add that path to those in keep-paths.`,
  )
}

/** A tree, and a path in it that is moved separately; the empty path is the tree itself. */
interface MovedPath {
  readonly root: string
  readonly path: string
}

/**
 * Tests this with a rename that must fail, because no directory can replace one that is not empty. If the path cannot
 * be moved, the system reports that instead. (For a path that is not a directory, it reports that the target is one, or
 * why the path cannot be moved.)
 */
function requireMovable(moved: MovedPath, target: string): void {
  const path = join(moved.root, moved.path)
  try {
    renameSync(path, target)
  } catch (error) {
    const reason = whyUnmovable(moved, errnoOf(error))
    if (reason !== undefined) throw new DeploymentError('unsafe_host', reason, { cause: error })
    return
  }
  // No file system that follows POSIX gets here, unless another process has emptied the target.
  moveBack(target, path)
  throw new DeploymentError(
    'unsafe_host',
    `${path} could be renamed to ${target}, which must never be empty; it is back in its place, and nothing was installed. Is there a program that empties or removes what is in ${dirname(target)}? Exclude that directory from it.`,
  )
}

function moveBack(from: string, path: string): void {
  try {
    renameSync(from, path)
  } catch (error) {
    throw new DeploymentError(
      'inconsistent',
      `${path} could be renamed to ${from}, which must never be empty, and could not be moved back (${errnoOf(error)}). Nothing was installed. Move it back by hand: mv -T ${from} ${path}`,
      { cause: error },
    )
  }
}

function whyUnmovable({ root, path }: MovedPath, errno: string | undefined): string | undefined {
  const full = join(root, path)
  switch (errno) {
    case 'EXDEV':
      return statfsSync(full).type === OVERLAY_MAGIC
        ? `${full} is in a lower layer of an overlay file system, such as a container's image, and cannot be renamed there (EXDEV). Nothing was changed. Put project-root on a volume, or replace the directory by a copy of itself (cp -a).`
        : `${full} cannot be renamed within this file system (EXDEV), which a deployment has to do. Nothing was changed. Put project-root on another one.`
    case 'EBUSY':
      return `${full} is in use by the system, perhaps as a mount point of another process (EBUSY), and cannot be moved. Nothing was changed. Unmount it, or put the data elsewhere and make the path a symlink to it.`
    case 'EACCES':
    case 'EPERM':
      return `This runner, uid ${process.getuid?.()}, is not allowed to move ${full}${ownerOf(full)} (${errno}), which a deployment has to do. Nothing was changed. ${grantFor({ root, path })}`
    default:
      return undefined
  }
}

function ownerOf(path: string): string {
  const found = lstatIfPresentSync(path)
  return found === undefined ? '' : `, which belongs to uid ${found.uid}`
}

/** A move of a directory needs write access to it and to its parent. */
function grantFor({ root, path }: MovedPath): string {
  const full = join(root, path)
  const needed = lstatIfPresentSync(full)?.isDirectory() ? [full, dirname(full)] : [dirname(full)]
  const lacking = needed.filter(directory => !isWritable(directory))
  if (lacking.length > 0) return `Grant it: setfacl -m u:${process.getuid?.()}:rwx ${lacking.join(' ')}`
  return `Remove the sticky bit of ${dirname(full)} (chmod -t) or the immutable mark (chattr -i), or give the path to the runner's user.`
}

function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK | constants.X_OK)
    return true
  } catch {
    return false
  }
}

/**
 * Returns a directory that nothing can replace, because it is never empty; so it needs no lock. It is made once and
 * kept, and nothing in it is opened. Throws as `requireNothingStranded` does.
 */
function irreplaceable(layout: Layout): string {
  const renameProbe = renameProbePath(layout)
  mkdirSync(renameProbe, { recursive: true, mode: 0o700 })
  requireNothingStranded(layout)
  if (readdirSync(renameProbe).length === 0) mkdirSync(join(renameProbe, FULL), { recursive: true, mode: 0o700 })
  return renameProbe
}

/**
 * Throws DeploymentError `inconsistent` if the target of the renames that must fail contains a path that such a rename
 * moved there, by a run that was killed or could not move it back.
 */
export function requireNothingStranded(layout: Layout): void {
  const names = strandedNames(layout)
  if (names.length === 0) return
  throw new DeploymentError(
    'inconsistent',
    `${renameProbePath(layout)} must contain nothing but ${FULL}, but contains ${listFirst(names, MAX_NAMED)}: it may be a plugin, service or kept path that was moved there. Nothing was installed. Move it back to its place by hand, or remove it, and run again.`,
  )
}

/** Returns the names that are there and may be missing from their places. */
export function strandedNames(layout: Layout): string[] {
  const renameProbe = renameProbePath(layout)
  const isDirectory = lstatIfPresentSync(renameProbe)?.isDirectory() ?? false
  return isDirectory ? readdirSync(renameProbe).filter(name => name !== FULL) : []
}

function mountOf(path: string): string {
  return withDirectorySync(realpathSync(path), ({ mount, stats }) => `${mount} ${stats.dev}`)
}

/** Returns the real path of a directory below the root, even if the end of it is still to be made. */
export function realDirectory({ root }: Layout, directory: string): string {
  const path = join(root, directory)
  const nearest = nearestDirectory(path)
  return join(realpathSync(nearest), relative(nearest, path))
}

/** The same; undefined if the path leads nowhere. */
export function findRealDirectory(layout: Layout, directory: string): string | undefined {
  try {
    return realDirectory(layout, directory)
  } catch (error) {
    if (isAbsent(error) || errnoOf(error) === 'ELOOP') return undefined
    throw error
  }
}

/** Returns the path itself if anything is there, else the nearest directory above, in which it will be made. */
export function nearestDirectory(path: string): string {
  return pathExistsSync(path) ? path : nearestDirectory(dirname(path))
}
