import { lstatSync, readdirSync, rmdirSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { TimeSlice } from './time-slice.ts'
import { isAbsent } from './tree-walk.ts'

/**
 * Removes the file or the whole directory at the path, if there is one; follows no symlink. Works in slices between
 * which signals are handled. Throws the system's error for the first entry that cannot be removed.
 */
export async function removeTree(path: string): Promise<void> {
  try {
    if (lstatSync(path).isDirectory()) await removeDirectory(path, new TimeSlice())
    else unlinkSync(path)
  } catch (error) {
    if (!isAbsent(error)) throw error
  }
}

/** Removes a file or a symlink if possible; returns whether it did. Never throws. */
export function tryUnlinkSync(path: string): boolean {
  try {
    unlinkSync(path)
    return true
  } catch {
    return false
  }
}

async function removeDirectory(path: string, slice: TimeSlice): Promise<void> {
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    const inner = join(path, entry.name)
    if (entry.isDirectory()) await removeDirectory(inner, slice)
    else unlinkSync(inner)
    if (slice.isOver()) await slice.giveBack()
  }
  rmdirSync(path)
}
