import { lstatSync, readdirSync, rmdirSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { TimeSlice } from './time-slice.ts'
import { isAbsent } from './tree-walk.ts'

/**
 * Removes what is at the path, with all that is in it, following no symlink; where nothing is, there is nothing to do.
 * Works in slices between which signals are heard. Throws what the operating system says of the first that stays.
 */
export async function removeTree(path: string): Promise<void> {
  try {
    if (lstatSync(path).isDirectory()) await removeDirectory(path, new TimeSlice())
    else unlinkSync(path)
  } catch (error) {
    if (!isAbsent(error)) throw error
  }
}

/** Removes a file or a symlink if it can; returns whether it did. Never throws. */
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
