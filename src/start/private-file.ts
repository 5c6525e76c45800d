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

/** A dispensable file must not use up a disk's last space. */
const MIN_FREE_BYTES = 64 * 1024 * 1024

/**
 * Reads a regular file that belongs to us alone and has one name. Returns undefined for any other file, for a file of
 * more than `maxBytes`, and if there is no file. Never waits for a pipe. Throws the system's error for a symlink and
 * for a file that cannot be read.
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
 * Replaces a file as a whole, with mode 0600, but does not sync it. Removes the temporary files of killed processes.
 * Throws the system's error, or one with the code `ENOSPC` if the disk would have less than 64 MiB left.
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

/**
 * In rare cases, this function also removes the temporary file of a live process, whose rename then fails. The failure
 * is harmless, because the file is dispensable.
 */
function removeRemains(path: string): void {
  const folder = dirname(path)
  for (const name of readdirSync(folder))
    if (name.startsWith(`${basename(path)}.`) && ownerOfTemporary(name) !== undefined) tryUnlink(join(folder, name))
}

function tryUnlink(path: string): void {
  try {
    unlinkSync(path)
  } catch {
    // The next run that replaces the file removes this temporary file.
  }
}
