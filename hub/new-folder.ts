import { mkdirSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

/**
 * Creates a folder and its missing parents; an existing folder is fine. Does not use Node's recursive mkdir, which
 * never returns for a new folder in /proc. Throws file system errors.
 */
export function makeFolder(folder: string, mode = 0o777): void {
  try {
    makeIfMissing(folder, mode)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || dirname(folder) === folder) throw error
    makeFolder(dirname(folder), mode)
    makeIfMissing(folder, mode)
  }
}

function makeIfMissing(folder: string, mode: number): void {
  try {
    mkdirSync(folder, { mode })
  } catch (error) {
    if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) throw error
  }
}
