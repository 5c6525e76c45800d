import { closeSync, constants, fstatSync, openSync, type Stats, statSync } from 'node:fs'
import { DeploymentError } from '../../core/errors.ts'
import { tryReadSmallFileSync } from './read-small-file.ts'

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

/** Enough for the system's description of a descriptor. */
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
      close: () => closeSync(fd),
    }
  } catch (error) {
    closeSync(fd)
    throw error
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
    `The directory ${path} of uid ${uid} can be changed by other users, and cannot be reached safely without /proc. Mount /proc; if the directory was to be removed, you can also remove it by hand.`,
  )
}

function mountOf(fd: number): string | undefined {
  return /^mnt_id:\s*(\d+)$/m.exec(
    tryReadSmallFileSync(`/proc/self/fdinfo/${fd}`, MAX_DESCRIPTOR_FACTS_BYTES) ?? '',
  )?.[1]
}
