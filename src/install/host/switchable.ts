import { accessSync, constants, mkdirSync, readdirSync, realpathSync, renameSync, statfsSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { withDirectorySync } from '../files/open.ts'
import { mountPointsIn } from '../files/space.ts'
import { isAbsent, lstatIfPresentSync, pathExistsSync } from '../files/walk.ts'
import { installPath, type Layout, type Place, renameProbePath } from './layout.ts'
import { type HostTree, presentPaths } from './snapshots.ts'

/**
 * A directory of this name is always in the target of the renames that must fail, so that the target is never empty.
 */
const FULL = 'full'
const OVERLAY_MAGIC = 0x794c7630

/** A host, and the paths that a deployment must keep there. */
export interface SwitchingHost {
  readonly layout: Layout
  keepPathsOf(place: Place): readonly string[]
}

/**
 * Checks that the content of a place can be switched by renames. The content must neither be nor contain a mount point,
 * and the system must let this run move the content and the kept paths in it. Leaves the content where it is.
 *
 * Throws DeploymentError `unsafe_host`, which says what to do.
 */
export function requireSwitchable({ layout, keepPathsOf }: SwitchingHost, place: Place): void {
  requireMovableTree(layout, { root: installPath(layout, place), keepPaths: keepPathsOf(place) })
}

/**
 * Does the same as `requireSwitchable` for any tree of this host, for example a snapshot whose kept paths will return.
 */
export function requireMovableTree(layout: Layout, { root, keepPaths }: HostTree): void {
  if (!pathExistsSync(root)) return
  requireNoMountPoint(root)
  const paths = ['', ...presentPaths(root, keepPaths)]
  for (const path of paths) probeRename({ root, path }, irreplaceable(layout))
}

/**
 * Checks that a shelf, the staging folder, the snapshots and the trash are on one mount, because no rename crosses
 * mounts, not even two mounts of one file system. Throws DeploymentError `host_not_writable`.
 */
export function requireOneMount(layout: Layout, { shelf, directory }: Pick<Place, 'shelf' | 'directory'>): void {
  const path = nearestDirectory(join(layout.root, directory))
  const snapshots = nearestDirectory(join(layout.snapshots, shelf))
  for (const folder of [layout.staging, snapshots, layout.trash]) {
    if (mountOf(path) === mountOf(folder)) continue
    throw new DeploymentError(
      'host_not_writable',
      `${path} is on a different file system or mount than ${folder}, so versions could not be switched by one rename. Mount both together, at the project root or above it.`,
    )
  }
}

function requireNoMountPoint(root: string): void {
  const [point] = mountPointsIn(root)
  if (point === undefined) return
  const remedy =
    point === root
      ? 'Mount the volume elsewhere.'
      : `Mount the volume elsewhere, make the path in ${root} a symlink to it, and add that path to keep-paths.`
  throw new DeploymentError(
    'unsafe_host',
    `${point} is a mount point at or below ${root}, which a deployment must move: the mounted volume would move, too. ${root} was not moved. ${remedy}`,
  )
}

/** A tree, and a path in it that is moved separately; the empty path is the tree itself. */
interface MovedPath {
  readonly root: string
  readonly path: string
}

/**
 * Checks, with a rename that must fail, that a path can be moved. The rename fails because no directory can replace a
 * directory that is not empty, and nothing else can replace a directory. If the path can be moved, the system reports
 * that the target is not empty, or is a directory. Otherwise, the system reports why the path cannot be moved.
 */
function probeRename(moved: MovedPath, target: string): void {
  const path = join(moved.root, moved.path)
  try {
    renameSync(path, target)
  } catch (error) {
    const reason = whyUnmovable(moved, errnoOf(error))
    if (reason !== undefined) throw new DeploymentError('unsafe_host', reason, { cause: error })
    return
  }
  // Reached only on a file system that does not follow POSIX.
  renameSync(target, path)
  throw new DeploymentError(
    'unsafe_host',
    `${path} could be renamed to ${target}, although that directory is not empty. It was moved back. Put project-root on another file system.`,
  )
}

function whyUnmovable({ root, path }: MovedPath, errno: string | undefined): string | undefined {
  const full = join(root, path)
  switch (errno) {
    case 'EXDEV':
      return statfsSync(full).type === OVERLAY_MAGIC
        ? `${full} is in a lower layer of an overlay file system, such as a container's image, and cannot be renamed there (EXDEV). It was not moved. Put project-root on a volume, or replace the directory by a copy of itself (cp -a).`
        : `${full} cannot be moved within project-root by a rename (EXDEV), but a deployment must move it. It was not moved. If a symlink in its path leads to another file system, add the symlink to keep-paths; otherwise, put project-root on another file system.`
    case 'EBUSY':
      return `${full} is in use by the system, perhaps as a mount point of another process (EBUSY), and cannot be moved. It stays where it is. Unmount it, or put the data elsewhere and make the path a symlink to the data.`
    case 'EACCES':
    case 'EPERM':
      return `This runner (uid ${process.getuid?.()}) is not allowed to move ${full}${ownerOf(full)} (${errno}), but a deployment must move it. It stays where it is. ${grantFor({ root, path })}`
    default:
      return undefined
  }
}

function ownerOf(path: string): string {
  const found = lstatIfPresentSync(path)
  return found === undefined ? '' : `, which belongs to uid ${found.uid}`
}

/** Moving a directory requires write access to the directory and to its parent. */
function grantFor({ root, path }: MovedPath): string {
  const full = join(root, path)
  const needed = lstatIfPresentSync(full)?.isDirectory() ? [full, dirname(full)] : [dirname(full)]
  const lacking = needed.filter(directory => !isWritable(directory))
  if (lacking.length > 0)
    return `Grant write access, as the owner and not as root, who would follow a symlink: setfacl -m u:${process.getuid?.()}:rwx ${lacking.join(' ')}`
  return `Remove the sticky bit of ${dirname(full)} (chmod -t) or the immutable attribute (chattr -i), or make the runner's user the owner of the path (chown -h).`
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
 * Returns a directory that no rename can replace, because it is never empty. Several runs can therefore use it without
 * a lock. The directory is created once and kept, and nothing in it is opened.
 */
function irreplaceable(layout: Layout): string {
  const renameProbe = renameProbePath(layout)
  mkdirSync(renameProbe, { recursive: true, mode: 0o700 })
  if (readdirSync(renameProbe).length === 0) mkdirSync(join(renameProbe, FULL), { recursive: true, mode: 0o700 })
  return renameProbe
}

function mountOf(path: string): string {
  return withDirectorySync(realpathSync(path), ({ mount, stats }) => `${mount} ${stats.dev}`)
}

/** Returns the real path of a directory below the root, even if its last directories do not exist yet. */
export function realDirectory({ root }: Layout, directory: string): string {
  const path = join(root, directory)
  const nearest = nearestDirectory(path)
  return join(realpathSync(nearest), relative(nearest, path))
}

/** Does the same as `realDirectory`, but returns undefined if the path leads nowhere. */
export function findRealDirectory(layout: Layout, directory: string): string | undefined {
  try {
    return realDirectory(layout, directory)
  } catch (error) {
    if (isAbsent(error) || errnoOf(error) === 'ELOOP') return undefined
    throw error
  }
}

/**
 * Returns the path itself if anything is there, else the nearest existing path above it, in which the path will be
 * created.
 */
export function nearestDirectory(path: string): string {
  return pathExistsSync(path) ? path : nearestDirectory(dirname(path))
}
