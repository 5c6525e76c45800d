import {
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
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
import { temporaryName } from './temporary-name.ts'
import { tryUnlinkSync } from './trees/remove-tree.ts'

const SYNC_TIMEOUT_MS = 10 * 60_000
const PARALLEL_SYNCS = 4

/** Makes an open file's bytes durable. This may take a long time, but never blocks the event loop. */
export const syncFile: (fd: number) => Promise<void> = promisify(fsync)

/**
 * Replaces a file's text, with mode 0600: after a crash it is either the old text or the new one. The directory must
 * exist.
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

/** Creates a file with mode 0600, complete and durable, or not at all. Resolves to false if the name is taken. */
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
 * Gives a complete file a new name, which must be free. Without hard links, claims the name with an empty file, which a
 * crash may leave behind, and renames the file to it, so that the file loses its first name. Returns whether the file
 * still has its first name.
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

/** True if a hard link failed because the file system has none. */
export function isWithoutLinks(error: unknown): boolean {
  return ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'].includes(errnoOf(error) ?? '')
}

/**
 * Creates a file that must not exist yet, and makes it durable. Its mode is 0600 until all its bytes are written, then
 * `mode`.
 */
export async function writeNewFile(path: string, text: string, mode = 0o600): Promise<void> {
  const fd = openSync(path, 'wx', 0o600)
  try {
    writeFileSync(fd, text)
    if (mode !== 0o600) fchmodSync(fd, mode)
    await syncFile(fd)
  } finally {
    closeSync(fd)
  }
}

/** Makes every creation, renaming and removal in a directory durable. */
export async function syncDirectory(path: string): Promise<void> {
  await openAndSync(path, constants.O_DIRECTORY)
}

/**
 * Makes whole trees of one file system durable, with one syncfs by `sync -f` (coreutils): an fsync of each file takes
 * ten times as long as the whole deployment. If `sync -f` is missing or fails, uses an fsync of every file and
 * directory. Throws if the bytes could not be made durable.
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
 * never ends in some file systems.
 */
export async function makePrivateDirectories(...paths: readonly string[]): Promise<void> {
  const parents = new Set<string>()
  for (const path of paths) if (makeIfMissingSync(path)) parents.add(dirname(path))
  for (const parent of parents) await syncDirectory(parent)
}

/** Creates a directory that all users may enter, with mode 0755 whatever the umask. Does not sync its parent. */
export function makeOpenDirectorySync(path: string): void {
  mkdirSync(path, { mode: 0o755 })
  chmodSync(path, 0o755)
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
    closeSync(fd)
  }
}
