import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  statfsSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { ownerOfTemporary, temporaryName } from '../install/files/temporary-name.ts'
import { isOpenToOthers } from '../install/host/ownership/private-directory.ts'

/** Nothing that can be done without takes a disk's last space. */
const MIN_FREE_BYTES = 64 * 1024 * 1024

/**
 * The bytes of a regular file that is ours alone and has one name; undefined for any other, for a larger one, and where
 * there is none. Follows no symlink, and waits for no pipe. Throws the system's error when it cannot be read.
 */
export function readPrivateFile(path: string, maxBytes: number): Buffer | undefined {
  const fd = openIfPresent(path)
  if (fd === undefined) return undefined
  try {
    const found = fstatSync(fd)
    const isOurs = found.isFile() && found.uid === process.getuid?.() && !isOpenToOthers(found) && found.nlink === 1
    return isOurs && found.size <= maxBytes ? readFileSync(fd) : undefined
  } finally {
    closeSync(fd)
  }
}

/**
 * Replaces a file, 0600, as a whole, but does not sync it; removes what killed processes have left of theirs. Throws the
 * system's error, or when there is little space.
 */
export function replacePrivateFile(path: string, bytes: Buffer): void {
  removeRemains(path)
  const { bavail, bsize } = statfsSync(dirname(path))
  if (bavail * bsize < MIN_FREE_BYTES + bytes.length)
    throw Object.assign(new Error('Little space.'), { code: 'ENOSPC' })
  const temporary = temporaryName(path)
  try {
    writeFileSync(temporary, bytes, { flag: 'wx', mode: 0o600 })
    renameSync(temporary, path)
  } catch (error) {
    tryUnlink(temporary)
    throw error
  }
}

function openIfPresent(path: string): number | undefined {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw error
  }
}

/** Also that of a live process, whose rename then fails, in the rare case: what is here can be done without. */
function removeRemains(path: string): void {
  const folder = dirname(path)
  for (const name of readdirSync(folder))
    if (name.startsWith(`${basename(path)}.`) && ownerOfTemporary(name) !== undefined) tryUnlink(join(folder, name))
}

function tryUnlink(path: string): void {
  try {
    unlinkSync(path)
  } catch {
    // The next run that keeps something removes it.
  }
}
