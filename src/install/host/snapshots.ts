import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { versionSchema } from '../../core/identifiers.ts'
import { isAbsent, pathExistsSync } from '../files/trees/tree-walk.ts'
import type { SnapshotRow } from './installed/rows.ts'
import { presentPaths } from './keep-paths.ts'
import { snapshotNameSchema } from './record-fields.ts'

export interface Retention {
  keep: SnapshotRow[]
  discard: SnapshotRow[]
}

/**
 * Returns the name of the next snapshot in the folder of a place. The name consists of the number after the highest one
 * in the folder or on record, a hyphen, and the version or `unknown`.
 */
export function nextSnapshotName(
  folder: string,
  version: string | null,
  recorded: readonly SnapshotRow[] = [],
): string {
  const known = [...listNames(folder), ...recorded.map(({ name }) => name)]
  const names = known.filter(name => snapshotNameSchema.safeParse(name).success)
  const highest = Math.max(0, ...names.map(name => Number.parseInt(name, 10)))
  return `${highest + 1}-${versionSchema.safeParse(version).data ?? 'unknown'}`
}

/**
 * Returns the recorded snapshots that still exist in the folder of a place, with those of their kept paths that exist.
 */
export function existingSnapshots(folder: string, rows: readonly SnapshotRow[]): SnapshotRow[] {
  return rows.flatMap(({ kept_paths: kept, ...row }) => {
    const path = join(folder, row.name)
    if (!pathExistsSync(path)) return []
    return kept === undefined ? [row] : [withKeptPaths(row, presentPaths(path, kept))]
  })
}

/** Returns the row with these kept paths, or the row itself if there are none. */
export function withKeptPaths(row: SnapshotRow, keptPaths: readonly string[]): SnapshotRow {
  return keptPaths.length === 0 ? row : { ...row, kept_paths: [...keptPaths] }
}

/** True if a snapshot must not be pruned, because nobody could fetch its content again. */
export function isIrreplaceable(row: SnapshotRow): boolean {
  return row.artifact_sha256 === null || row.kept_paths !== undefined
}

/**
 * Chooses the snapshots to keep. Of the snapshots without changes made on this host, keeps the newest `limit`, but at
 * least one (the last good version). Of those with such changes, also keeps the newest `limit`, but at least one. Keeps
 * every snapshot whose content nobody could fetch again, because we did not install it or because it contains kept
 * paths.
 */
export function chooseRetained(rows: readonly SnapshotRow[], limit: number): Retention {
  const newestOf = (some: readonly SnapshotRow[]): readonly SnapshotRow[] => some.slice(-Math.max(limit, 1))
  const newest = new Set([...newestOf(rows.filter(isGenuine)), ...newestOf(rows.filter(row => !isGenuine(row)))])
  const isKept = (row: SnapshotRow): boolean => newest.has(row) || isIrreplaceable(row)
  return { keep: rows.filter(isKept), discard: rows.filter(row => !isKept(row)) }
}

/** True if a snapshot contains a version as it was installed, without later changes on this host. */
export function isGenuine({ modified }: SnapshotRow): boolean {
  return modified === undefined
}

function listNames(path: string): string[] {
  try {
    return readdirSync(path)
  } catch (error) {
    if (isAbsent(error)) return []
    throw error
  }
}
