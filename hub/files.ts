import { createHash } from 'node:crypto'
import { closeSync, mkdirSync, openSync, readSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { HubError } from './errors.ts'

/**
 * Writes the file that the option `--out` names, and leaves nothing behind if that fails. Throws HubError 400 if the
 * file exists or cannot be written.
 */
export function writeNewFile(path: string, content: string | Uint8Array, mode = 0o666): void {
  const file = create(path, mode)
  try {
    writeFileSync(file, content)
  } catch (error) {
    rmSync(path, { force: true })
    throw notWritten(path, error)
  } finally {
    closeSync(file)
  }
}

function create(path: string, mode: number): number {
  try {
    return openSync(path, 'wx', mode)
  } catch (error) {
    throw notWritten(path, error)
  }
}

function notWritten(path: string, error: unknown): HubError {
  const { code } = error as NodeJS.ErrnoException
  if (code === 'EEXIST')
    return new HubError(400, `${path} already exists and is not overwritten: choose another --out.`)
  return new HubError(
    400,
    `The file ${path} cannot be written (${code}): choose an --out in an existing folder that you can write to and that has free space.`,
  )
}

/**
 * Creates a folder and its missing parents; an existing folder is fine. Does not use Node's recursive mkdir, which
 * never returns for a new folder in /proc. Throws file system errors.
 */
export function makeFolder(folder: string, mode = 0o777): void {
  try {
    makeIfMissing(folder, mode)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || dirname(folder) === folder) throw error
    makeFolder(dirname(folder), mode)
    makeIfMissing(folder, mode)
  }
}

function makeIfMissing(folder: string, mode: number): void {
  try {
    mkdirSync(folder, { mode })
  } catch (error) {
    if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) throw error
  }
}

const READ_PIECE_BYTES = 256 * 1024

/** Yields a file's bytes in pieces of at most 256 KiB, each in its own memory. */
export function* readPieces(path: string): Generator<Buffer> {
  const fd = openSync(path, 'r')
  try {
    for (;;) {
      const piece = Buffer.allocUnsafe(READ_PIECE_BYTES)
      const length = readSync(fd, piece)
      if (length === 0) return
      yield piece.subarray(0, length)
    }
  } finally {
    closeSync(fd)
  }
}

/** The SHA-256 of a file's bytes, in lowercase hex. */
export function hashFile(path: string): string {
  const hash = createHash('sha256')
  for (const piece of readPieces(path)) hash.update(piece)
  return hash.digest('hex')
}

/** The end of a sentence about a file that cannot be read: what is wrong with the file, and what to do. */
export function unreadable(error: unknown, ifMissing = 'correct the path'): string {
  const { code } = error as NodeJS.ErrnoException
  switch (code) {
    case 'ENOENT':
      return `does not exist: ${ifMissing}`
    case 'EISDIR':
      return 'is a folder: name a file'
    default:
      return `cannot be read (${code}): correct the path or the permissions`
  }
}
