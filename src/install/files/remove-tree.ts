import { randomUUID } from 'node:crypto'
import {
  chmodSync,
  type Dirent,
  mkdirSync,
  opendirSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmdirSync,
  unlinkSync,
} from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { toTemporaryError } from './errors.ts'
import { type OpenDirectory, openDirectorySync } from './open.ts'
import { TimeSlice } from './time-slice.ts'
import { isAbsent, lstatIfPresentSync } from './walk.ts'

/** The number of attempts to empty directories that another process is still filling. A later run removes the rest. */
const MAX_REFILLS = 100

/** The limit on open directories. Directories at deeper levels are moved up first. An archive has at most 64 levels. */
const MAX_OPEN = 70

/** Enough for a tree of 700,000 levels. */
const MAX_MOVED_UP = 10_000

/** Directories up to this size, with a few thousand entries at most, are listed at once. */
const MAX_BYTES_AT_ONCE = 64 * 1024
const LISTED_AT_ONCE = 2000

/**
 * Removes the file, symlink or directory at the path, with everything in it. Does nothing if nothing is there. The
 * caller must make sure that only this user can change the directory that contains the path. Removes everything below
 * the path by descriptor, so it touches nothing outside the tree, whatever another process renames, replaces or links
 * in the tree meanwhile. Enters no mount point, but recognizes a bind mount of the same file system only with /proc.
 * Works in slices, between which signals are handled. Removes everything that it can, and then throws the error about
 * the first item that stays. That is the system's error, or DeploymentError `unsafe_host` for a mount point or as
 * `openDirectorySync` throws it. Soon after the signal is aborted, stops and throws the signal's reason.
 */
export async function removeTree(path: string, signal?: AbortSignal): Promise<void> {
  const stat = lstatIfPresentSync(path)
  if (stat === undefined) return
  if (!stat.isDirectory()) return unlinkIfPresentSync(path)
  const parent = openDirectorySync(realpathSync(dirname(path)))
  try {
    await new TreeRemoval(parent, dirname(path), signal).remove([Buffer.from(basename(path))])
  } finally {
    parent.close()
  }
}

/**
 * Removes everything in a directory, as `removeTree` does. Other processes may do the same at the same time. Throws as
 * `removeTree` does, also DeploymentError `unsafe_host` if the directory itself is a mount point.
 */
export async function emptyDirectory(path: string, signal?: AbortSignal): Promise<void> {
  const parent = openDirectorySync(realpathSync(dirname(path)))
  try {
    const directory = openDirectorySync(parent.entry(basename(path)))
    try {
      if (!isOnMountOf(parent, directory)) throw mountedAt(path)
      await new TreeRemoval(directory, path, signal).removeAll()
    } finally {
      directory.close()
    }
  } finally {
    parent.close()
  }
}

/** Removes a file or a symlink. Returns true on success; never throws. */
export function tryUnlinkSync(path: string): boolean {
  try {
    unlinkSync(path)
    return true
  } catch {
    return false
  }
}

/** An entry of an open directory. */
interface Inner {
  readonly parent: OpenDirectory
  readonly name: Buffer
  /** The path of `parent`, for messages only. */
  readonly container: string
  readonly depth: number
}

class TreeRemoval {
  readonly #top: OpenDirectory
  readonly #path: string
  readonly #signal: AbortSignal | undefined
  readonly #slice: TimeSlice
  /** Directories that were nested too deeply and are now in `top`. */
  readonly #movedUp: Inner[] = []
  #movedUpCount = 0
  #refillCount = 0
  #firstError: unknown

  /** `path` is the path of `top`, for messages only. */
  constructor(top: OpenDirectory, path: string, signal?: AbortSignal) {
    this.#top = top
    this.#path = path
    this.#signal = signal
    this.#slice = new TimeSlice(signal)
  }

  /** Removes everything in the top directory. */
  async removeAll(): Promise<void> {
    await this.remove((await this.#list(this.#top)).map(({ name }) => name))
  }

  /** Removes these entries of the top directory. */
  async remove(names: readonly Buffer[]): Promise<void> {
    for (const name of names) {
      const tree: Inner = { parent: this.#top, name, container: this.#path, depth: 1 }
      for (let next: Inner | undefined = tree; next !== undefined; next = this.#movedUp.pop()) await this.#remove(next)
      if (this.#slice.isOver()) await this.#slice.giveBack()
    }
    if (this.#firstError !== undefined) throw this.#firstError
  }

  async #remove(inner: Inner): Promise<void> {
    const directory = this.#open(inner)
    if (directory === undefined) return
    try {
      do await this.#empty(directory, inner)
      while (this.#isRefilled(inner))
    } finally {
      directory.close()
    }
  }

  /** Returns undefined if the item is no longer a directory, or cannot or must not be entered. */
  #open(inner: Inner): OpenDirectory | undefined {
    const { parent, name } = inner
    try {
      const directory = openDirectorySync(parent.entry(name))
      if (isOnMountOf(parent, directory)) return directory
      directory.close()
      this.#note(mountedAt(pathOf(inner)), inner)
    } catch (error) {
      if (isNoDirectory(error)) this.#unlink(inner)
      else this.#note(error, inner)
    }
    return undefined
  }

  async #empty(directory: OpenDirectory, outer: Inner): Promise<void> {
    const [container, depth] = [pathOf(outer), outer.depth + 1]
    for (const entry of await this.#tryList(directory, outer)) {
      const inner = { parent: directory, name: entry.name, container, depth }
      if (!entry.isDirectory()) this.#unlink(inner)
      else if (depth > MAX_OPEN) this.#moveUp(inner)
      else await this.#remove(inner)
      if (this.#slice.isOver()) await this.#slice.giveBack()
    }
  }

  /** Returns no entries if the directory cannot be listed, or has just been removed by another process. */
  async #tryList(directory: OpenDirectory, outer: Inner): Promise<readonly Dirent<Buffer>[]> {
    try {
      makeWritable(directory)
      return await this.#list(directory)
    } catch (error) {
      if (this.#signal?.aborted) throw error
      if (!isAbsent(error)) this.#note(error, outer)
      return []
    }
  }

  /** Lists a large directory in slices. */
  async #list({ stats, entry }: OpenDirectory): Promise<readonly Dirent<Buffer>[]> {
    if (stats.size <= MAX_BYTES_AT_ONCE) return readdirSync(entry(), { withFileTypes: true, encoding: 'buffer' })
    const opened = opendirSync(entry(), { encoding: 'buffer' as BufferEncoding, bufferSize: LISTED_AT_ONCE })
    try {
      const entries: Dirent<Buffer>[] = []
      for (let next = opened.readSync(); next !== null; next = opened.readSync()) {
        // The type does not know this encoding.
        entries.push(next as unknown as Dirent<Buffer>)
        if (this.#slice.isOver()) await this.#slice.giveBack()
      }
      return entries
    } finally {
      opened.closeSync()
    }
  }

  /** Removes the emptied directory. Returns true if it must be emptied again, because another process works in it. */
  #isRefilled(inner: Inner): boolean {
    try {
      rmdirSync(inner.parent.entry(inner.name))
      return false
    } catch (error) {
      const isFull = ['ENOTEMPTY', 'EEXIST'].includes(errnoOf(error) ?? '')
      if (isFull && this.#firstError === undefined && this.#refillCount++ < MAX_REFILLS) return true
      if (!isAbsent(error)) this.#note(error, inner)
      return false
    }
  }

  /**
   * Ignores an item that has become a directory: the parent then turns out not to be empty, and is emptied once more.
   */
  #unlink(inner: Inner): void {
    try {
      unlinkSync(inner.parent.entry(inner.name))
    } catch (error) {
      if (!isAbsent(error) && errnoOf(error) !== 'EISDIR') this.#note(error, inner)
    }
  }

  #moveUp(inner: Inner): void {
    if (this.#movedUpCount++ >= MAX_MOVED_UP) return
    const moved = { ...inner, parent: this.#top, name: Buffer.from(`removed-${randomUUID()}`), depth: 1 }
    try {
      renameSync(inner.parent.entry(inner.name), this.#top.entry(moved.name))
      this.#movedUp.push(moved)
    } catch (error) {
      if (!isAbsent(error)) this.#note(error, inner)
    }
  }

  #note(error: unknown, inner: Inner): void {
    this.#firstError ??= error instanceof DeploymentError ? error : namedAfter(pathOf(inner), error)
  }
}

function isOnMountOf(parent: OpenDirectory, directory: OpenDirectory): boolean {
  return directory.mount === parent.mount && directory.stats.dev === parent.stats.dev
}

/** Without write access to a directory, not even the owner can remove its files. */
function makeWritable({ stats, entry }: OpenDirectory): void {
  if (stats.uid === process.getuid?.() && (stats.mode & 0o700) !== 0o700) chmodSync(entry(), 0o700)
}

function pathOf({ container, name }: Inner): string {
  return `${container}/${name}`
}

function isNoDirectory(error: unknown): boolean {
  return isAbsent(error) || errnoOf(error) === 'ELOOP'
}

function mountedAt(path: string): DeploymentError {
  return new DeploymentError(
    'unsafe_host',
    `${path} is a mount point, so it was not emptied: mount the volume elsewhere.`,
  )
}

/** Puts the path, which the operator knows, into the message in place of the path by descriptor. */
function namedAfter(path: string, error: unknown): unknown {
  if (!(error instanceof Error && 'path' in error)) return error
  const message = error.message.replace(/'.*'/s, () => `'${path}'`)
  return Object.assign(error, { message, path })
}

function unlinkIfPresentSync(path: string): void {
  try {
    unlinkSync(path)
  } catch (error) {
    if (!isAbsent(error)) throw error
  }
}

const NAME = /^hub-deploy-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/**
 * Returns the path of a private folder below `parent` that does not exist yet. A process that may have to remove the
 * folder must know its path before the folder exists.
 */
export function namePrivateFolder(parent: string): string {
  return join(parent, `hub-deploy-${randomUUID()}`)
}

/** Creates the folder with mode 0700. Throws DeploymentError `disk_full`, `host_not_writable` or `step_failed`. */
export function makePrivateFolderSync(path: string): void {
  try {
    mkdirSync(path, 0o700)
  } catch (error) {
    throw toTemporaryError(error, dirname(path))
  }
}

/**
 * Removes a private folder, if it exists, with everything in it, as `removeTree` does. Does nothing for a path that
 * `namePrivateFolder` would not return for this parent.
 */
export async function removePrivateFolder(parent: string, path: string, signal?: AbortSignal): Promise<void> {
  const name = path.slice(dirname(path).length + 1)
  if (resolve(dirname(path)) === resolve(parent) && NAME.test(name)) await removeTree(path, signal)
}

/** The codes of a directory that stays because something is in it, and of one that is gone or was replaced. */
const NOT_EMPTY: ReadonlySet<string> = new Set(['ENOTEMPTY', 'EEXIST', 'ENOENT', 'ENOTDIR'])

/**
 * Removes a directory only if it is empty. Does not sync the removal, because an empty directory that returns after a
 * power cut does no harm.
 */
export function removeIfEmptySync(path: string): void {
  try {
    rmdirSync(path)
  } catch (error) {
    if (!NOT_EMPTY.has(errnoOf(error) ?? '')) throw error
  }
}
