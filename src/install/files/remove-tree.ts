import { join } from 'node:path'
import { lstat, readdir, rmdir, unlink } from './direct-fs.ts'
import { TimeSlice } from './time-slice.ts'
import { isAbsent } from './tree-walk.ts'

/**
 * Removes what is at the path, with all that is in it, following no symlink; where nothing is, there is nothing to do.
 * Works in slices between which signals are heard. Throws what the operating system says of the first that stays.
 */
export async function removeTree(path: string): Promise<void> {
  try {
    const found = await lstat(path)
    await (found.isDirectory() ? removeDirectory(path, new TimeSlice()) : unlink(path))
  } catch (error) {
    if (!isAbsent(error)) throw error
  }
}

async function removeDirectory(path: string, slice: TimeSlice): Promise<void> {
  for (const entry of await readdir(path, { withFileTypes: true })) {
    const inner = join(path, entry.name)
    await (entry.isDirectory() ? removeDirectory(inner, slice) : unlink(inner))
    if (slice.isOver()) await slice.giveBack()
  }
  await rmdir(path)
}
