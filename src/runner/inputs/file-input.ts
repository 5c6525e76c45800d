import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs'
import { isAbsolute, relative, resolve, sep } from 'node:path'
import { errnoOf } from '../../core/errors.ts'
import { NotReadable, openBelowSync } from '../../install/files/open-below.ts'

/**
 * The start of one of the operator's files, as text: at most `maxBytes` and one more, so that the parser sees a file
 * that is too large; what is not UTF-8 becomes U+FFFD, which the parser reports at its place. Never waits for the other
 * end of a pipe. Throws an Error with the reason, as part of a sentence, for anything but a readable regular file.
 */
export function readStart(path: string, maxBytes: number): string {
  try {
    return readBytes(openSync(path, constants.O_RDONLY | constants.O_NONBLOCK), maxBytes + 1)
  } catch (error) {
    throw new Error(reasonOf(error), { cause: error })
  }
}

/**
 * The same for a workspace of which somebody else may have written the content, a pull request for example: a path in
 * it leads through no symlink, which could lead to a file of this machine. Another path is the operator's own.
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

function reasonOf(error: unknown): string {
  switch (errnoOf(error)) {
    case 'ENOENT':
    case 'ENOTDIR':
      return 'there is no such file (was the repository checked out?)'
    case 'EISDIR':
      return 'it is a directory (name a file in it)'
    case 'EACCES':
    case 'EPERM':
      return "the runner's user may not read it"
    default:
      return error instanceof Error ? error.message : String(error)
  }
}

/** Closes the descriptor. */
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
