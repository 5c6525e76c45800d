import { lstatSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { countInWords } from '../../../core/quantities.ts'
import { toHostError } from '../../files/system-errors.ts'
import { TimeSlice } from '../../files/time-slice.ts'
import { isAbsent } from '../../files/trees/tree-walk.ts'

/** A file or directory that was moved into a staged tree. */
interface MovedFile {
  /** Both relative to the root. */
  readonly from: string
  readonly to: string
  readonly ino: string
  /** Times of modification and creation, in nanoseconds. */
  readonly times?: string
}

/** Bounds the search while the new version creates one file after another. */
const MAX_ENTRIES = 1_000_000

/**
 * Finds, by its inode and its time of creation, a file or directory that was moved into a staged tree and has been
 * renamed there since. Returns its path relative to the root, or undefined if there is none or if the time of creation
 * is not known. Follows no symlink. Another process may replace the path at any time, so reach it through its open
 * folder. Throws if the tree has too many entries or a folder that cannot be searched: the tree is deleted later, and a
 * file that was not found would be deleted with it.
 */
export async function findRenamed(root: string, moved: MovedFile, limit = MAX_ENTRIES): Promise<string | undefined> {
  const made = moved.times?.split(' ')[1] ?? '0'
  if (made === '0') return undefined
  const slice = new TimeSlice()
  const pending = [treeOf(moved)]
  let left = limit
  for (let folder = pending.pop(); folder !== undefined; folder = pending.pop()) {
    for (const entry of searching(folder, () => readdirSync(join(root, folder), { withFileTypes: true })) ?? []) {
      if (left-- === 0) throw tooMany(moved, limit)
      if (slice.isOver()) await slice.giveBack()
      const path = `${folder}/${entry.name}`
      if (searching(folder, () => isIt(join(root, path), moved.ino, made))) return path
      if (entry.isDirectory()) pending.push(path)
    }
  }
  return undefined
}

/** `.hub-deploy/staging/<deployment>/<tree>`. */
function treeOf({ to }: MovedFile): string {
  return to.split('/').slice(0, 4).join('/')
}

function isIt(path: string, ino: string, made: string): boolean {
  const stat = lstatSync(path, { bigint: true })
  return String(stat.ino) === ino && String(stat.birthtimeNs) === made
}

function tooMany(moved: MovedFile, limit: number): Error {
  return new Error(
    `${moved.from} is missing. The new version may have renamed it, but ${treeOf(moved)} has more than ${countInWords(limit)} files and directories, too many to search. ` +
      'Stop the process that creates them, and run again.',
  )
}

/** Returns undefined if the entry or the folder no longer exists. */
function searching<Found>(folder: string, read: () => Found): Found | undefined {
  try {
    return read()
  } catch (error) {
    if (isAbsent(error)) return undefined
    throw toHostError(error, `searching ${folder} for a path that the new version may have renamed`)
  }
}
