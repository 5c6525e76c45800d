import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'

/**
 * Returns the text of a regular file of at most `maxBytes`, or undefined for anything else at the path. Never waits for
 * the other end of a pipe. Opens the path with these additional `flags`. Throws the system's error if the path cannot
 * be opened or read.
 */
export function readSmallFileSync(path: string, maxBytes: number, flags = 0): string | undefined {
  return readSmallBytesSync(path, maxBytes, flags)?.toString('utf8')
}

/** Does the same as `readSmallFileSync`, but returns the bytes. */
export function readSmallBytesSync(path: string, maxBytes: number, flags: number): Buffer | undefined {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | flags)
  try {
    const stat = fstatSync(fd)
    return stat.isFile() && stat.size <= maxBytes ? readFileSync(fd) : undefined
  } finally {
    closeSync(fd)
  }
}

/**
 * Does the same as `readSmallFileSync`, but also returns undefined if the path cannot be opened or read. Never throws.
 */
export function tryReadSmallFileSync(path: string, maxBytes: number): string | undefined {
  try {
    return readSmallFileSync(path, maxBytes)
  } catch {
    return undefined
  }
}
