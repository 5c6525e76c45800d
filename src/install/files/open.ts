import {
  close,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdtempSync,
  openSync,
  readFileSync,
  realpathSync,
  rmdirSync,
  type Stats,
  statSync,
  unlinkSync,
} from 'node:fs'
import { isAbsolute, join, relative, sep } from 'node:path'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { toTemporaryError } from './errors.ts'

/**
 * A directory that is reached by its descriptor: `entry` leads into this very directory, even if another process has
 * moved the directory away and put a symlink in its place. This guarantee needs Linux's /proc. Without /proc, a
 * directory is reached by its name, and is refused if any user other than this one and root owns it or can write to it,
 * because its entries could be swapped at any time.
 */
export interface OpenDirectory {
  readonly stats: Stats
  /** Returns the path of an entry, or, without a name, of the directory itself. */
  entry(name?: string | Buffer): Buffer
  /**
   * The id of the mount that contains the directory, which may be a bind mount; undefined if the system does not say.
   * Read this property while the directory is open.
   */
  readonly mount: string | undefined
  close(): void
}

const MAX_DESCRIPTOR_FACTS_BYTES = 64 * 1024

/**
 * Opens a directory. If the last component of the path is a symlink, does not follow it, and throws the system's error
 * ENOTDIR or ELOOP. Throws DeploymentError `unsafe_host` if the directory can be reached only by its name, and other
 * users own it or can write to it.
 */
export function openDirectorySync(path: string | Buffer): OpenDirectory {
  const fd = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW)
  try {
    const stats = fstatSync(fd)
    const prefix = Buffer.from(isReachable(fd, stats) ? `/proc/self/fd/${fd}` : requireUnshared(path, stats))
    let mount: { readonly id: string | undefined } | undefined
    return {
      stats,
      entry: name => (name === undefined ? prefix : Buffer.concat([prefix, Buffer.from('/'), Buffer.from(name)])),
      get mount() {
        mount ??= { id: mountOf(fd) }
        return mount.id
      },
      close: () => closeQuietlySync(fd),
    }
  } catch (error) {
    closeSync(fd)
    throw error
  }
}

/**
 * Closes a descriptor that was only read, or whose bytes are synced: an error of its close would say nothing about them.
 */
export function closeQuietlySync(fd: number): void {
  try {
    closeSync(fd)
  } catch {
    // The descriptor is free, even after an error.
  }
}

/** Calls `act` with the open directory, and closes the directory when `act` has returned or thrown. */
export function withDirectorySync<Result>(path: string | Buffer, act: (directory: OpenDirectory) => Result): Result {
  const directory = openDirectorySync(path)
  try {
    return act(directory)
  } finally {
    directory.close()
  }
}

function isReachable(fd: number, { dev, ino }: Stats): boolean {
  try {
    const found = statSync(`/proc/self/fd/${fd}`)
    return found.dev === dev && found.ino === ino
  } catch (error) {
    // Only a missing /proc makes the name the way to the directory. The name may lead through a descriptor that is
    // closed next, and everything below it would look as if it were gone.
    if (errnoOf(error) === 'ENOENT') return false
    throw error
  }
}

function requireUnshared(path: string | Buffer, { uid, mode }: Stats): Buffer {
  const own = process.getuid?.()
  const isOurs = own === undefined || ((uid === own || uid === 0) && (mode & 0o022) === 0)
  if (isOurs) return Buffer.from(path)
  throw new DeploymentError(
    'unsafe_host',
    `The directory ${path} of uid ${uid} can be changed by other users, and cannot be reached safely without /proc. Mount /proc; if the directory was to be removed, you can also remove it by hand.`,
  )
}

function mountOf(fd: number): string | undefined {
  return /^mnt_id:\s*(\d+)$/m.exec(
    tryReadSmallFileSync(`/proc/self/fdinfo/${fd}`, MAX_DESCRIPTOR_FACTS_BYTES) ?? '',
  )?.[1]
}

/** The error for a path that must not or cannot be read. Its message is a clause, such as `it is a symlink`. */
export class NotReadable extends Error {}

/**
 * Opens a regular file below `folder` for reading and returns its descriptor. Follows no symlink below the folder, not
 * even one that another process puts there meanwhile. Opens no device and waits for no pipe. `path` is relative to the
 * folder, or absolute and below it. Throws NotReadable.
 */
export function openBelowSync(folder: string, path: string): number {
  const parts = partsBelow(folder, path)
  try {
    return openParts(realpathSync(folder), parts)
  } catch (error) {
    throw error instanceof NotReadable ? error : new NotReadable(reasonOf(error), { cause: error })
  }
}

function partsBelow(folder: string, path: string): string[] {
  const parts = (isAbsolute(path) ? relative(folder, path) : path)
    .split(sep)
    .filter(part => part !== '' && part !== '.')
  if (parts.includes('..') || parts.length === 0) throw new NotReadable('it is not below the workspace')
  return parts
}

function openParts(folder: string, [name = '', ...rest]: readonly string[]): number {
  const directory = openDirectorySync(folder)
  try {
    const path = directory.entry(name)
    return rest.length === 0 ? openRegular(path) : openParts(path.toString(), rest)
  } finally {
    directory.close()
  }
}

/** Checks the file before opening it, because opening a device may already have an effect. */
function openRegular(path: Buffer): number {
  requireRegular(lstatSync(path))
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  try {
    requireRegular(fstatSync(fd))
    return fd
  } catch (error) {
    closeSync(fd)
    throw error
  }
}

function requireRegular(found: { isFile(): boolean; isSymbolicLink(): boolean; isDirectory(): boolean }): void {
  if (found.isSymbolicLink()) throw new NotReadable('it is a symlink')
  if (found.isDirectory()) throw new NotReadable('it is a directory')
  if (!found.isFile()) throw new NotReadable('it is not a regular file')
}

function reasonOf(error: unknown): string {
  switch (errnoOf(error)) {
    case 'ENOENT':
      return 'there is no such file (was the repository checked out?)'
    case 'ENOTDIR':
    case 'ELOOP':
      return 'its path leads through a symlink or a file'
    case 'EACCES':
    case 'EPERM':
      return "the runner's user is not allowed to read it"
    default:
      return `it cannot be opened (${error instanceof Error ? error.message : String(error)})`
  }
}

interface PrivateFile {
  readonly fd: number
  /**
   * May be called more than once. Does not wait until the system has reclaimed the space, because that takes a tenth of
   * a second for a large file.
   */
  close(): void
}

/**
 * Opens a file for private data, such as a download. Creates the file in a private directory (0700) below `parent`, and
 * then unlinks it. No other job can reach the file by name, and nothing is left behind, even if this process is killed
 * later. Throws DeploymentError `disk_full`, `host_not_writable` or `step_failed`.
 */
export function openPrivateFileSync(parent: string): PrivateFile {
  try {
    const path = mkdtempSync(join(parent, 'hub-deploy-'))
    try {
      const fd = withDirectorySync(path, openUnnamedSync)
      return closeableOnce(fd)
    } finally {
      rmdirSync(path)
    }
  } catch (error) {
    throw toTemporaryError(error, parent)
  }
}

/** Closes the descriptor only once, because its number may soon be another file's. */
function closeableOnce(fd: number): PrivateFile {
  let isOpen = true
  return {
    fd,
    close() {
      if (isOpen) close(fd, () => {})
      isOpen = false
    },
  }
}

/**
 * Uses the directory's descriptor: another user who owns the temporary folder could replace the directory with a
 * symlink.
 */
function openUnnamedSync(directory: OpenDirectory): number {
  const path = directory.entry('artifact')
  const fd = openSync(path, 'wx+', 0o600)
  unlinkSync(path)
  return fd
}

/**
 * Returns the text of a regular file of at most `maxBytes`, or undefined for anything else at the path. Never waits for
 * the other end of a pipe. Opens the path with these additional `flags`. Throws the system's error if the path cannot
 * be opened or read.
 */
export function readSmallFileSync(path: string, maxBytes: number, flags = 0): string | undefined {
  return readSmallBytesSync(path, maxBytes, flags)?.toString('utf8')
}

/** Does the same as `readSmallFileSync`, but returns the bytes. */
export function readSmallBytesSync(path: string, maxBytes: number, flags: number): Buffer | undefined {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | flags)
  try {
    const stat = fstatSync(fd)
    return stat.isFile() && stat.size <= maxBytes ? readFileSync(fd) : undefined
  } finally {
    closeQuietlySync(fd)
  }
}

/**
 * Does the same as `readSmallFileSync`, but also returns undefined if the path cannot be opened or read. Never throws.
 */
export function tryReadSmallFileSync(path: string, maxBytes: number): string | undefined {
  try {
    return readSmallFileSync(path, maxBytes)
  } catch {
    return undefined
  }
}
