import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { versionSchema } from '../../core/identifiers.ts'
import { isAbsent, pathExistsSync } from '../files/tree-walk.ts'
import type { SnapshotRow } from './installed.ts'
import { presentPaths } from './keep-paths.ts'

export interface Retention {
  keep: SnapshotRow[]
  discard: SnapshotRow[]
}

/** The name for the next snapshot in the folder of a place: one above the highest number there, then the version. */
export function nextSnapshotName(folder: string, version: string | null): string {
  const names = listNames(folder)
  const highest = Math.max(0, ...names.map(name => Number.parseInt(name, 10) || 0))
  return `${highest + 1}-${versionSchema.safeParse(version).data ?? 'unknown'}`
}

/** The recorded snapshots that the folder of a place still has, each with those of its kept paths that it still has. */
export function existingSnapshots(folder: string, rows: readonly SnapshotRow[]): SnapshotRow[] {
  return rows.flatMap(({ kept_paths: kept, ...row }) => {
    const path = join(folder, row.name)
    if (!pathExistsSync(path)) return []
    return kept === undefined ? [row] : [withKeptPaths(row, presentPaths(path, kept))]
  })
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

function listNames(path: string): string[] {
  try {
    return readdirSync(path)
  } catch (error) {
    if (isAbsent(error)) return []
    throw error
  }
}
