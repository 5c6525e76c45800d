import { closeSync, constants, fstatSync, openSync, readSync, type Stats, statSync } from 'node:fs'
import { isAbsolute, relative, resolve, sep } from 'node:path'
import { errnoOf } from '../../core/errors.ts'
import { NotReadable, openBelowSync } from '../../install/files/open-below.ts'
import { walkPath } from '../../install/host/ownership/path-walk.ts'

/**
 * Returns the start of one of the operator's files as text. Reads up to one byte more than `maxBytes`, so that the
 * parser notices a file that is too large. Invalid UTF-8 becomes U+FFFD, which the parser reports. Never waits for the
 * other end of a pipe. Throws an Error for anything but a readable regular file. The error's message is a reason, which
 * can complete a sentence.
 */
export function readStart(path: string, maxBytes: number): string {
  try {
    return readBytes(openSync(path, constants.O_RDONLY | constants.O_NONBLOCK), maxBytes + 1)
  } catch (error) {
    throw new Error(reasonOf(error), { cause: error })
  }
}

/**
 * Like `readStart`, for a workspace whose content may come from someone else, such as the author of a pull request. A
 * path into the workspace must not lead through a symlink, which could point to any file on this machine. A path
 * outside the workspace is the operator's own.
 */
export function readStartInside(workspace: string, path: string, maxBytes: number): string {
  const resolved = resolve(workspace, path)
  const inside = relative(workspace, resolved)
  if (inside === '..' || inside.startsWith(`..${sep}`) || isAbsolute(inside)) return readStart(resolved, maxBytes)
  try {
    return readBytes(openBelowSync(workspace, inside), maxBytes + 1)
  } catch (error) {
    throw new Error(error instanceof NotReadable ? error.message : reasonOf(error), { cause: error })
  }
}

/**
 * True if the way to a file leads into the project root, by whatever name. What is there may come from a service or a
 * publisher, so no file that says what to run may be read from there. False if there is no root, or if it cannot be
 * examined, because no run can use such a root. Throws the system's error if the way cannot be examined.
 */
export function leadsIntoRoot(path: string, root: string): boolean {
  const there = tryToStat(root)
  if (there === undefined) return false
  const { way, end } = walkPath(path)
  return [...way, ...(end === undefined ? [] : [end])].some(
    ({ stat }) => stat.ino === there.ino && stat.dev === there.dev,
  )
}

function tryToStat(path: string): Stats | undefined {
  try {
    return statSync(path)
  } catch {
    return undefined
  }
}

function reasonOf(error: unknown): string {
  switch (errnoOf(error)) {
    case 'ENOENT':
    case 'ENOTDIR':
      return 'there is no such file (a file of the repository needs a checkout step before this step)'
    case 'EISDIR':
      return 'it is a directory (name a file in it)'
    case 'EACCES':
    case 'EPERM':
      return "the runner's user is not allowed to read it"
    default:
      return error instanceof Error ? error.message : String(error)
  }
}

/** Reads up to `maxBytes` and closes the descriptor. */
function readBytes(fd: number, maxBytes: number): string {
  try {
    const stat = fstatSync(fd)
    if (!stat.isFile() && !stat.isDirectory()) throw new Error('it is not a regular file')
    const bytes = Buffer.alloc(maxBytes)
    let size = 0
    for (let count = -1; count !== 0 && size < maxBytes; size += count)
      count = readSync(fd, bytes, size, maxBytes - size, null)
    return bytes.subarray(0, size).toString('utf8')
  } finally {
    closeSync(fd)
  }
}
