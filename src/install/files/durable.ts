import { randomUUID } from 'node:crypto'
import {
  closeSync,
  constants,
  fsync,
  linkSync,
  mkdirSync,
  openSync,
  promises,
  renameSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { errnoOf } from '../../core/errors.ts'
import { allowedEnvironment, runChild } from './child-process.ts'
import { closeQuietlySync } from './open.ts'
import { tryUnlinkSync } from './remove-tree.ts'

const SYNC_TIMEOUT_MS = 10 * 60_000
const PARALLEL_SYNCS = 4

/** Makes an open file's bytes durable. The sync may take a long time, but never blocks the event loop. */
export const syncFile: (fd: number) => Promise<void> = promisify(fsync)

/**
 * Writes this text to a new file with mode 0600, which replaces any existing file at the path. After a crash, the path
 * has either the old file or the new one. The directory must exist.
 */
export async function replaceFile(path: string, text: string): Promise<void> {
  const temporary = temporaryName(path)
  try {
    await writeNewFile(temporary, text)
    renameSync(temporary, path)
  } catch (error) {
    tryUnlinkSync(temporary)
    throw error
  }
  await syncDirectory(dirname(path))
}

/**
 * Creates a complete, durable file with mode 0600, or no file at all. On a file system without hard links, however, a
 * crash may leave an empty file. Resolves to false if the name is taken.
 */
export async function createFile(path: string, text: string): Promise<boolean> {
  const temporary = temporaryName(path)
  try {
    await writeNewFile(temporary, text)
    linkOrClaimSync(temporary, path)
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    throw error
  } finally {
    tryUnlinkSync(temporary)
  }
  await syncDirectory(dirname(path))
  return true
}

/**
 * Gives a complete file a new name, which must be free. If the file system has hard links, the file also keeps its
 * first name, and this function returns true. Otherwise, claims the new name with an empty file, renames the complete
 * file to that name, and returns false. A crash in between leaves the empty file behind.
 */
export function linkOrClaimSync(file: string, path: string): boolean {
  try {
    linkSync(file, path)
    return true
  } catch (error) {
    if (!isWithoutLinks(error)) throw error
    closeSync(openSync(path, 'wx', 0o600))
    renameSync(file, path)
    return false
  }
}

/** True if a hard link failed because the file system supports none. */
export function isWithoutLinks(error: unknown): boolean {
  return ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'].includes(errnoOf(error) ?? '')
}

/**
 * Creates a file with mode 0600 that must not exist yet, and makes its bytes durable, but does not sync the directory.
 */
export async function writeNewFile(path: string, text: string): Promise<void> {
  const fd = openSync(path, 'wx', 0o600)
  try {
    writeFileSync(fd, text)
    await syncFile(fd)
  } finally {
    closeQuietlySync(fd)
  }
}

/** Makes every creation, renaming and removal in a directory durable. */
export async function syncDirectory(path: string): Promise<void> {
  await openAndSync(path, constants.O_DIRECTORY)
}

/**
 * Makes whole trees of one file system durable with a single syncfs, by `sync -f` (coreutils). An fsync of each file
 * would take ten times as long as the whole deployment. If `sync -f` is missing or fails, calls fsync for every file
 * and directory instead. Returns which of the two was used. Throws an error if the bytes could not be made durable, and
 * the signal's reason if the signal is aborted before `sync` has ended.
 */
export async function syncTrees(
  [root, ...others]: readonly [string, ...string[]],
  signal?: AbortSignal,
): Promise<'syncfs' | 'fsync'> {
  const end = await runChild({
    command: ['sync', '-f', root],
    env: allowedEnvironment({ LC_ALL: 'C' }),
    timeoutMs: SYNC_TIMEOUT_MS,
    signal,
    isSilent: true,
  })
  if (end.kind === 'exited' && end.code === 0) return 'syncfs'
  for (const tree of [root, ...others]) await syncEveryFile(tree)
  return 'fsync'
}

/**
 * Creates missing directories with mode 0700, durably. Does not create their parents, because Node's recursive mkdir
 * never ends on some file systems.
 */
export async function makePrivateDirectories(...paths: readonly string[]): Promise<void> {
  const parents = new Set<string>()
  for (const path of paths) if (makeIfMissingSync(path)) parents.add(dirname(path))
  for (const parent of parents) await syncDirectory(parent)
}

/**
 * Creates a directory that all users may enter, with mode 0755 as `withOpenUmask` says. Does not sync its parent.
 */
export function makeOpenDirectorySync(path: string): void {
  withOpenUmask(() => mkdirSync(path, { mode: 0o755 }))
}

/**
 * Creates files or directories with modes up to 0755, whatever the umask of this process. A setgid bit and a default ACL
 * of the parent directory apply, and the ACL may take bits away. A chmod after the creation would give back such bits,
 * and would remove a setgid bit.
 */
export function withOpenUmask<Made>(create: () => Made): Made {
  const umask = process.umask(0o022)
  try {
    return create()
  } finally {
    process.umask(umask)
  }
}

function makeIfMissingSync(path: string): boolean {
  try {
    mkdirSync(path, { mode: 0o700 })
    return true
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    throw error
  }
}

async function syncEveryFile(root: string): Promise<void> {
  const entries = await promises.readdir(root, { recursive: true, withFileTypes: true })
  const paths = entries
    .filter(entry => entry.isFile() || entry.isDirectory())
    .map(entry => join(entry.parentPath, entry.name))
  paths.push(root)
  const workers = Array.from({ length: PARALLEL_SYNCS }, async () => {
    for (let path = paths.pop(); path !== undefined; path = paths.pop()) {
      await openAndSync(path, constants.O_NOFOLLOW)
    }
  })
  await Promise.all(workers)
}

async function openAndSync(path: string, flags: number): Promise<void> {
  const fd = openSync(path, constants.O_RDONLY | flags)
  try {
    await syncFile(fd)
  } finally {
    closeQuietlySync(fd)
  }
}

/**
 * Returns a path next to `path` that contains the id of this process, so that the files of a killed process can be
 * found and removed.
 */
export function temporaryName(path: string): string {
  return `${path}.${process.pid}.${randomUUID()}.tmp`
}

/** Returns the id of the process that a temporary name belongs to, or undefined for any other name. */
export function ownerOfTemporary(name: string): number | undefined {
  const pid = /\.(\d{1,10})\.[0-9a-f-]{36}\.tmp$/.exec(name)?.[1]
  return pid === undefined ? undefined : Number(pid)
}

/**
 * Returns the results of all pieces of work once all have ended. If any failed, throws the first error in the order of
 * the arguments. Unlike Promise.all, leaves nothing running, such as a child that is being ended after a cancel.
 */
export async function awaitAll<const Works extends readonly unknown[]>(
  ...works: Works
): Promise<{ -readonly [K in keyof Works]: Awaited<Works[K]> }> {
  const ends = await Promise.allSettled(works)
  const failed = ends.find(end => end.status === 'rejected')
  if (failed !== undefined) throw failed.reason
  return (await Promise.all(works)) as { -readonly [K in keyof Works]: Awaited<Works[K]> }
}
