import { join } from 'node:path'
import { versionSchema } from '../core/identifiers.ts'
import { readdir } from './direct-fs.ts'
import type { SnapshotRow } from './installed.ts'
import { type Layout, type Shelf, snapshotsPath } from './layout.ts'
import { exists, isAbsent } from './tree-walk.ts'

export interface Retention {
  keep: SnapshotRow[]
  discard: SnapshotRow[]
}

/** The name for the next snapshot of an id: one above the highest number there, then the version. */
export async function nextSnapshotName(
  layout: Layout,
  shelf: Shelf,
  id: string,
  version: string | null,
): Promise<string> {
  const names = await listNames(snapshotsPath(layout, shelf, id))
  const highest = Math.max(0, ...names.map(name => Number.parseInt(name, 10) || 0))
  return `${highest + 1}-${versionSchema.safeParse(version).data ?? 'unknown'}`
}

/** The recorded snapshots that are still there. */
export async function existingSnapshots(
  layout: Layout,
  shelf: Shelf,
  id: string,
  rows: readonly SnapshotRow[],
): Promise<SnapshotRow[]> {
  const present = await Promise.all(rows.map(row => exists(join(snapshotsPath(layout, shelf, id), row.name))))
  return rows.filter((_, index) => present[index])
}

/**
 * Which snapshots stay: the newest `limit`, always the last good one (the newest), and what we did not install
 * ourselves, because nobody could fetch that again.
 */
export function chooseRetained(rows: readonly SnapshotRow[], limit: number): Retention {
  const firstKept = rows.length - Math.max(limit, 1)
  const isKept = (row: SnapshotRow, index: number): boolean => index >= firstKept || row.artifact_sha256 === null
  return { keep: rows.filter(isKept), discard: rows.filter((row, index) => !isKept(row, index)) }
}

async function listNames(path: string): Promise<string[]> {
  return readdir(path).catch(error => {
    if (isAbsent(error)) return []
    throw error
  })
}
