import { closeSync, constants, fstatSync, openSync, type Stats, statSync } from 'node:fs'
import { DeploymentError } from '../../core/errors.ts'
import { tryReadSmallFileSync } from './read-small-file.ts'

/**
 * A directory by its descriptor: `entry` leads into this very directory, even if another process has moved it away and
 * put a symlink in its place. This needs Linux' /proc. Without it, a directory that another user owns or can write is
 * refused, because its entries can be swapped at any time; any other directory is reached by its name.
 */
export interface OpenDirectory {
  readonly stats: Stats
  /** Returns the path of an entry, or, without a name, of the directory itself. */
  entry(name?: string | Buffer): Buffer
  /**
   * The mount that contains the directory, including bind mounts; undefined if the system does not name it. Read this
   * while the directory is open.
   */
  readonly mount: string | undefined
  close(): void
}

/** Enough for the system's description of a descriptor. */
const MAX_DESCRIPTOR_FACTS_BYTES = 64 * 1024

/**
 * Opens a directory, never through a symlink in its last component: the system's error is then ENOTDIR or ELOOP. Throws
 * DeploymentError `unsafe_host` if a directory of other users can be reached only by its name.
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
      close: () => closeSync(fd),
    }
  } catch (error) {
    closeSync(fd)
    throw error
  }
}

/** Calls `act` with an open directory, and closes it. */
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
  } catch {
    return false
  }
}

function requireUnshared(path: string | Buffer, { uid, mode }: Stats): Buffer {
  const own = process.getuid?.()
  const isOurs = own === undefined || ((uid === own || uid === 0) && (mode & 0o022) === 0)
  if (isOurs) return Buffer.from(path)
  throw new DeploymentError(
    'unsafe_host',
    `${path} belongs to uid ${uid}, or others can write in it, and this system has no /proc through which it could be reached safely. Mount /proc, or remove that directory by hand.`,
  )
}

function mountOf(fd: number): string | undefined {
  return /^mnt_id:\s*(\d+)$/m.exec(
    tryReadSmallFileSync(`/proc/self/fdinfo/${fd}`, MAX_DESCRIPTOR_FACTS_BYTES) ?? '',
  )?.[1]
}
