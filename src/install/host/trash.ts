import { randomUUID } from 'node:crypto'
import { renameSync } from 'node:fs'
import { join } from 'node:path'
import { emptyDirectory } from '../files/remove-tree.ts'
import { isAbsent, pathExistsSync } from '../files/walk.ts'
import type { Layout } from './layout.ts'

// Removing a large tree takes a while, and nobody should wait for that. So a run that has the lock only moves a tree to
// the trash, with one rename. Whatever is in the trash is needed by no run and no recovery, so it is removed without the
// lock, by any run.

/**
 * Moves to the trash what nobody needs any longer. `name` is a name to look for there: a taken name is replaced by a
 * random one. Does nothing if nothing is at the path. Throws the system's error if the path cannot be moved.
 */
export function moveToTrash({ trash }: Layout, path: string, name: string = randomUUID()): void {
  const isTaken = pathExistsSync(join(trash, name))
  try {
    renameSync(path, join(trash, isTaken ? randomUUID() : name))
  } catch (error) {
    if (!isAbsent(error) || pathExistsSync(path)) throw error
  }
}

/**
 * Removes everything in the trash, as `emptyDirectory` does. The caller needs no lock, but must have checked the host
 * (see `requireSafeHost`). Other processes may do the same at the same time, or move more trees to the trash.
 */
export async function emptyTrash({ trash }: Layout, signal: AbortSignal): Promise<void> {
  if (pathExistsSync(trash)) await emptyDirectory(trash, signal)
}
