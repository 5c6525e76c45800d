import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs'
import { resolve } from 'node:path'
import type { SourceFile } from '../core/document/source-file.ts'
import { errnoOf } from '../core/errors.ts'
import type { InputReader } from './input-reader.ts'

/**
 * A regular file of the operator's; undefined, and a problem, when it is none or cannot be read. Never waits for the other
 * end of a pipe. One that is too large, or no UTF-8, is cut one byte beyond `maxBytes`, or gets U+FFFD: who parses it
 * complains of both, at its place.
 */
export function readSource(
  read: InputReader,
  workspace: string,
  path: string | undefined,
  input: string,
  maxBytes: number,
): SourceFile | undefined {
  if (path === undefined) return undefined
  const found = resolve(workspace, path)
  try {
    return { path, text: readStart(found, maxBytes + 1).toString('utf8') }
  } catch (error) {
    read.refuse(input, `names ${path}, which cannot be read at ${found}: ${describeFailure(error)}`)
    return undefined
  }
}

function describeFailure(error: unknown): string {
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

/** The first bytes of a regular file, at most so many. */
function readStart(path: string, maxBytes: number): Buffer {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const stat = fstatSync(fd)
    if (!stat.isFile() && !stat.isDirectory()) throw new Error('it is no regular file')
    const bytes = Buffer.alloc(maxBytes)
    let size = 0
    for (let count = -1; count !== 0 && size < maxBytes; size += count)
      count = readSync(fd, bytes, size, maxBytes - size, null)
    return bytes.subarray(0, size)
  } finally {
    closeSync(fd)
  }
}
