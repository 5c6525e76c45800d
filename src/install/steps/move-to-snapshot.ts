import { dirname, join, relative } from 'node:path'
import { installPath, type Layout, type Place, snapshotsPath } from '../layout.ts'
import { nextSnapshotName } from '../snapshots.ts'
import type { Transaction } from '../transaction.ts'
import { exists } from '../tree-walk.ts'

export interface Snapshot {
  name: string
  /** Absolute. */
  path: string
}

/** Moves what is in a place to the snapshots, under the next number and its version. */
export async function moveToSnapshot(
  { layout, transaction }: { layout: Layout; transaction: Transaction },
  { shelf, id }: Place,
  version: string | null,
): Promise<Snapshot> {
  const name = await nextSnapshotName(layout, shelf, id, version)
  const folder = snapshotsPath(layout, shelf, id)
  for (const missing of [dirname(folder), folder]) {
    if (!(await exists(missing)))
      await transaction.apply({ type: 'make_directory', path: relative(layout.root, missing) })
  }
  const [from, path] = [installPath(layout, shelf, id), join(folder, name)]
  await transaction.apply({ type: 'move', from: relative(layout.root, from), to: relative(layout.root, path) })
  return { name, path }
}
