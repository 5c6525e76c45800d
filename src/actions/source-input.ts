import { closeSync, openSync, readSync } from 'node:fs'
import { resolve } from 'node:path'
import { errnoOf } from '../core/errors.ts'
import type { SourceFile } from '../core/source-file.ts'
import type { InputReader } from './input-reader.ts'

/**
 * A file of the operator's; undefined, and a problem, when it cannot be read. One that is too large, or no UTF-8, is cut
 * one byte beyond `maxBytes`, or gets U+FFFD: who parses it complains of both, at its place.
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
    const why = errnoOf(error) ?? 'unknown error'
    read.refuse(input, `names ${path}, which cannot be read at ${found} (${why}; was the repository checked out?)`)
    return undefined
  }
}

/** The first bytes of a file, at most so many. */
function readStart(path: string, maxBytes: number): Buffer {
  const fd = openSync(path, 'r')
  try {
    const bytes = Buffer.alloc(maxBytes)
    let size = 0
    for (let count = -1; count !== 0 && size < maxBytes; size += count)
      count = readSync(fd, bytes, size, maxBytes - size, null)
    return bytes.subarray(0, size)
  } finally {
    closeSync(fd)
  }
}
