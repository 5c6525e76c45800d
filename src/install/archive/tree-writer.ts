import { createHash, hash } from 'node:crypto'
import { chmodSync, closeSync, fchmodSync, fstatSync, mkdirSync, openSync, symlinkSync, writeFileSync } from 'node:fs'
import { unsafeEntry } from '../../core/archive/archive-entry.ts'
import type { PlannedSymlink } from '../../core/archive/symlink-policy.ts'
import { errnoOf } from '../../core/errors.ts'
import type { ExtractedFile } from '../files/extracted-tree.ts'
import { toHostError } from '../files/system-errors.ts'

const PERMISSION_BITS = 0o7777

type FileToWrite = Pick<ExtractedFile, 'path' | 'mode'>

/*
 * All of these make something new below `root`, never through or over what is there, with the given mode whatever the
 * umask. They throw DeploymentError `disk_full` or `host_not_writable` for what the host refuses, and ArchiveError
 * `unsafe_archive` where this file system takes a path for another one or for too long.
 */

/** Makes a directory, mode 0755. */
export function makeDirectory(root: string, path: string): void {
  make(path, () => {
    mkdirSync(`${root}/${path}`, 0o755)
    chmodSync(`${root}/${path}`, 0o755)
  })
}

/** Writes a file whole; `sha256` is that of its bytes, where it is known. */
export function writeFile(
  root: string,
  { path, mode }: FileToWrite,
  bytes: Buffer,
  sha256: string = hash('sha256', bytes, 'hex'),
): ExtractedFile {
  withNewFile(root, path, mode, fd => writeFileSync(fd, bytes))
  return { path, size: bytes.length, mode, sha256 }
}

/** Writes a file piece by piece; what reading the pieces throws passes as it is. */
export async function writeFileFrom(
  root: string,
  { path, mode }: FileToWrite,
  pieces: AsyncIterable<Buffer>,
): Promise<ExtractedFile> {
  const digest = createHash('sha256')
  let size = 0
  const fd = make(path, () => openNew(root, path, mode))
  try {
    for await (const piece of pieces) {
      make(path, () => writeFileSync(fd, piece))
      digest.update(piece)
      size += piece.length
    }
  } finally {
    closeSync(fd)
  }
  return { path, size, mode, sha256: digest.digest('hex') }
}

export function makeSymlink(root: string, { path, target }: PlannedSymlink): void {
  make(path, () => symlinkSync(target, `${root}/${path}`))
}

function withNewFile(root: string, path: string, mode: number, use: (fd: number) => void): void {
  make(path, () => {
    const fd = openNew(root, path, mode)
    try {
      use(fd)
    } finally {
      closeSync(fd)
    }
  })
}

/** `wx` is O_EXCL: it fails on whatever is there, a symlink included. */
function openNew(root: string, path: string, mode: number): number {
  const fd = openSync(`${root}/${path}`, 'wx', mode)
  // The umask, or a default ACL, may have taken something away; to look costs an eighth of a change.
  if ((fstatSync(fd).mode & PERMISSION_BITS) !== mode) fchmodSync(fd, mode)
  return fd
}

function make<Made>(path: string, action: () => Made): Made {
  try {
    return action()
  } catch (error) {
    const errno = errnoOf(error)
    if (errno === 'EEXIST') throw unsafeEntry(path, 'has the same name as another entry to this file system')
    if (errno === 'ENAMETOOLONG') throw unsafeEntry(path, 'has a path that is too long for this file system')
    throw toHostError(error, `extracting "${path}"`)
  }
}
