import { closeSync, constants, fstatSync, lstatSync, openSync, realpathSync } from 'node:fs'
import { isAbsolute, relative, sep } from 'node:path'
import { errnoOf } from '../../core/errors.ts'
import { openDirectorySync } from './open-directory.ts'

/** The error for a path that must not or cannot be read. Its message is a clause, such as `it is a symlink`. */
export class NotReadable extends Error {}

/**
 * Opens a regular file below `folder` for reading and returns its descriptor. Follows no symlink below the folder, not
 * even one that another process puts there meanwhile. Opens no device and waits for no pipe. `path` is relative to the
 * folder, or absolute and below it. Throws NotReadable.
 */
export function openBelowSync(folder: string, path: string): number {
  const parts = partsBelow(folder, path)
  try {
    return openParts(realpathSync(folder), parts)
  } catch (error) {
    throw error instanceof NotReadable ? error : new NotReadable(reasonOf(error), { cause: error })
  }
}

function partsBelow(folder: string, path: string): string[] {
  const parts = (isAbsolute(path) ? relative(folder, path) : path)
    .split(sep)
    .filter(part => part !== '' && part !== '.')
  if (parts.includes('..') || parts.length === 0) throw new NotReadable('it is not below the workspace')
  return parts
}

function openParts(folder: string, [name = '', ...rest]: readonly string[]): number {
  const directory = openDirectorySync(folder)
  try {
    const path = directory.entry(name)
    return rest.length === 0 ? openRegular(path) : openParts(path.toString(), rest)
  } finally {
    directory.close()
  }
}

/** Checks the file before opening it, because opening a device may already have an effect. */
function openRegular(path: Buffer): number {
  requireRegular(lstatSync(path))
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  try {
    requireRegular(fstatSync(fd))
    return fd
  } catch (error) {
    closeSync(fd)
    throw error
  }
}

function requireRegular(found: { isFile(): boolean; isSymbolicLink(): boolean; isDirectory(): boolean }): void {
  if (found.isSymbolicLink()) throw new NotReadable('it is a symlink')
  if (found.isDirectory()) throw new NotReadable('it is a directory')
  if (!found.isFile()) throw new NotReadable('it is not a regular file')
}

function reasonOf(error: unknown): string {
  switch (errnoOf(error)) {
    case 'ENOENT':
      return 'there is no such file (was the repository checked out?)'
    case 'ENOTDIR':
    case 'ELOOP':
      return 'its path leads through a symlink or a file'
    case 'EACCES':
    case 'EPERM':
      return "the runner's user is not allowed to read it"
    default:
      return `it cannot be opened (${error instanceof Error ? error.message : String(error)})`
  }
}
