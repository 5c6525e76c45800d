import { join } from 'node:path'
import { versionSchema } from '../../core/identifiers.ts'
import { readdir } from '../files/direct-fs.ts'
import { exists, isAbsent } from '../files/tree-walk.ts'
import type { SnapshotRow } from './installed.ts'
import { presentPaths } from './keep-paths.ts'
import { type Layout, type Shelf, snapshotsPath } from './layout.ts'

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

/** The recorded snapshots that are still there, each with those of its kept paths that still lie in it. */
export async function existingSnapshots(
  layout: Layout,
  shelf: Shelf,
  id: string,
  rows: readonly SnapshotRow[],
): Promise<SnapshotRow[]> {
  const found = rows.map(async ({ kept_paths: kept, ...row }) => {
    const path = join(snapshotsPath(layout, shelf, id), row.name)
    if (!(await exists(path))) return []
    return kept === undefined ? [row] : [withKeptPaths(row, await presentPaths(path, kept))]
  })
  return (await Promise.all(found)).flat()
}

/** A snapshot's row that says what of the host's own lies in it, if anything does. */
export function withKeptPaths(row: SnapshotRow, keptPaths: readonly string[]): SnapshotRow {
  return keptPaths.length === 0 ? row : { ...row, kept_paths: [...keptPaths] }
}

/** Whether a snapshot must not be pruned: nobody could fetch what is in it again. */
export function isIrreplaceable(row: SnapshotRow): boolean {
  return row.artifact_sha256 === null || row.kept_paths !== undefined
}

/**
 * Which snapshots stay: the newest `limit`, always the last good one (the newest), and what nobody could fetch again: what
 * we did not install ourselves, and what holds the host's own.
 */
export function chooseRetained(rows: readonly SnapshotRow[], limit: number): Retention {
  const firstKept = rows.length - Math.max(limit, 1)
  const isKept = (row: SnapshotRow, index: number): boolean => index >= firstKept || isIrreplaceable(row)
  return { keep: rows.filter(isKept), discard: rows.filter((row, index) => !isKept(row, index)) }
}

async function listNames(path: string): Promise<string[]> {
  return readdir(path).catch(error => {
    if (isAbsent(error)) return []
    throw error
  })
}
