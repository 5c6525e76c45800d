import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { DeploymentError } from '../../core/errors.ts'
import { versionSchema } from '../../core/identifiers.ts'
import { removeTree } from '../files/remove-tree.ts'
import { asListed } from '../files/spelling.ts'
import { isAbsent, lstatIfPresentSync, pathExistsSync } from '../files/walk.ts'
import { type SnapshotRow, snapshotNameSchema } from './rows.ts'

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
  const known = [...readNames(folder), ...recorded.map(({ name }) => name)]
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

function readNames(path: string): string[] {
  try {
    return readdirSync(path)
  } catch (error) {
    if (isAbsent(error)) return []
    throw error
  }
}

/** A directory of this host, with the paths in it that belong to the host. */
export interface HostTree {
  readonly root: string
  readonly keepPaths: readonly string[]
}

/** Returns all paths in these lists, in order and without duplicates. */
export function uniteKeepPaths(...lists: readonly (readonly string[] | undefined)[]): string[] {
  return [...new Set(lists.flatMap(list => list ?? []))]
}

/**
 * Returns the keep-paths that exist in a tree, except those inside another keep-path. Throws DeploymentError
 * `step_failed` if one of these paths cannot be moved to the staged tree, because in one of the two trees, a parent of
 * the path is not a directory.
 */
export function findKeptPaths(tree: HostTree, staged: string): string[] {
  const kept = findMovablePaths(tree)
  for (const path of kept) requireRealParents(staged, path)
  return kept
}

/** Does the same as `findKeptPaths`, but checks only the tree itself. */
export function findMovablePaths({ root, keepPaths }: HostTree): string[] {
  const kept = presentPaths(root, keepPaths)
  for (const path of kept) requireRealParents(root, path)
  return kept
}

/**
 * Returns the paths that exist in a directory, as they are listed there, except any that is inside another of these
 * paths.
 */
export function presentPaths(root: string, paths: readonly string[]): string[] {
  const present = paths.filter(path => pathExistsSync(join(root, path)))
  return outermost(present.map(path => asListed(root, path)))
}

/** Removes from a staged tree the paths that the host keeps. Returns those that the artifact had shipped. */
export async function dropShipped(staged: string, kept: readonly string[]): Promise<string[]> {
  const shipped: string[] = []
  for (const path of kept) {
    if (!pathExistsSync(join(staged, path))) continue
    await removeTree(join(staged, path))
    shipped.push(path)
  }
  return shipped
}

function outermost(paths: readonly string[]): string[] {
  const unique = [...new Set(paths)]
  return unique.filter(path => !unique.some(other => path.startsWith(`${other}/`)))
}

function requireRealParents(root: string, path: string): void {
  const parts = path.split('/').slice(0, -1)
  for (let depth = 0; depth <= parts.length; depth++) {
    const parent = parts.slice(0, depth).join('/')
    const stat = lstatIfPresentSync(join(root, parent))
    if (stat === undefined) return
    if (!stat.isDirectory()) throw unkeepable(root, { path, parent })
  }
}

function unkeepable(root: string, { path, parent }: { path: string; parent: string }): DeploymentError {
  const advice =
    parent === ''
      ? `${root} is not a directory. Replace it with a directory, or remove it.`
      : `its parent ${parent} is not a directory in ${root}. Add ${parent} to keep-paths.`
  return new DeploymentError('step_failed', `The kept path ${path} cannot be moved to another version: ${advice}`)
}
