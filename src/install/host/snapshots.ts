import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { type DeployError, DeploymentError } from '../../core/errors.ts'
import { versionSchema } from '../../core/identifiers.ts'
import { asSentence } from '../../core/text.ts'
import { sizeOnDisk } from '../files/space.ts'
import { asListed } from '../files/spelling.ts'
import { isAbsent, lstatIfPresentSync, pathExistsSync } from '../files/walk.ts'
import { type Layout, nameOf, nextNumber, numberOf, partOf, SET_ASIDE, snapshotsPath } from './layout.ts'
import { readHostRecord } from './record.ts'
import { type SnapshotRow, snapshotNameSchema } from './rows.ts'
import { moveToTrash } from './trash.ts'

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
  const number = nextNumber(known.filter(name => snapshotNameSchema.safeParse(name).success))
  return `${number}-${versionSchema.safeParse(version).data ?? 'unknown'}`
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

/** How many copies of each kind to keep, at the time of the decision. */
export interface RetentionRule {
  /** `keep-snapshots`; 0 also keeps one. */
  readonly limit: number
  readonly now: Date
}

/**
 * Chooses the snapshots to keep. Of the snapshots without changes made on this host, keeps the newest `limit`, but at
 * least one (the last good version). Of those with such changes, discards only what `findExpired` returns. Keeps every
 * snapshot whose content nobody could fetch again, because we did not install it or because it contains kept paths.
 */
export function chooseRetained(rows: readonly SnapshotRow[], rule: RetentionRule): Retention {
  const newest = new Set(newestOf(rows.filter(isGenuine), rule))
  const modified = rows.filter(row => !isGenuine(row))
  const expired = new Set(findExpired(modified.map(copyIn), rule).map(({ name }) => name))
  const isKept = (row: SnapshotRow): boolean =>
    isIrreplaceable(row) || (isGenuine(row) ? newest.has(row) : !expired.has(row.name))
  return { keep: rows.filter(isKept), discard: rows.filter(row => !isKept(row)) }
}

/** The only copy of files that were made or changed on this host: a modified snapshot, or files that were set aside. */
interface OnlyCopy {
  /** Begins with the copy's number. */
  readonly name: string
  /** The time at which the copy was made, in milliseconds; NaN if unknown. */
  readonly madeAt: number
}

function copyIn({ name, retained_at: at }: SnapshotRow): OnlyCopy {
  return { name, madeAt: Date.parse(at ?? '') }
}

/** Nobody can fetch these files again, and an operator may take a while to notice that they are no longer in place. */
const MIN_AGE_MS = 30 * 86_400_000

/**
 * Returns the copies that are at least 30 days old, and for which `limit` newer ones exist. A copy whose time is
 * unknown or in the future counts as young.
 */
function findExpired(copies: readonly OnlyCopy[], rule: RetentionRule): OnlyCopy[] {
  const newest = new Set(newestOf(copies, rule))
  return copies.filter(copy => !newest.has(copy) && rule.now.getTime() - copy.madeAt >= MIN_AGE_MS)
}

function newestOf<Named extends { readonly name: string }>(
  some: readonly Named[],
  { limit }: RetentionRule,
): readonly Named[] {
  return some.toSorted(inOrderOfRetention).slice(-Math.max(limit, 1))
}

/**
 * Orders the snapshots of one place, or what was set aside, oldest first: by the numbers in the names, because a clock
 * may have been wrong.
 */
function inOrderOfRetention(one: { readonly name: string }, other: { readonly name: string }): number {
  return numberOf(one.name) - numberOf(other.name)
}

/** Begins the name of a staging folder that was set aside. It may contain kept paths, so it is never pruned. */
export const ASIDE_STAGING = 'staging-'

/** The number, the time in milliseconds, and the former name. */
const ASIDE_NAME = new RegExp(`^[0-9]{1,15}-([0-9]{13})-(?!${ASIDE_STAGING})`)

/** Returns a free path for files to be set aside, relative to the project root. */
export function nextAsidePath(root: string, name: string): string {
  return `${SET_ASIDE}/${nextNumber(readNames(join(root, SET_ASIDE)))}-${Date.now()}-${name}`
}

/** Returns the paths, relative to the project root, of what was set aside and need not be kept any longer. */
export function findExpiredAside(root: string, rule: RetentionRule): string[] {
  return findExpired(copiesAside(root), rule).map(({ name }) => `${SET_ASIDE}/${name}`)
}

function copiesAside(root: string): OnlyCopy[] {
  return readNames(join(root, SET_ASIDE)).flatMap(name => {
    const time = ASIDE_NAME.exec(name)?.[1]
    return time === undefined ? [] : [{ name, madeAt: Number(time) }]
  })
}

const MAX_NAMED = 5

/**
 * Adds to an error `disk_full` the oldest copies that only the 30 days keep from being pruned, with their sizes: an
 * operator may want to remove some. Returns any other error as it is. Never throws.
 */
export async function withRemovable(layout: Layout, error: DeployError): Promise<DeployError> {
  if (error.code !== 'disk_full') return error
  const named: string[] = []
  for (const path of tryListCopies(layout).slice(0, MAX_NAMED))
    named.push(`${path} (${await sizeOnDisk(join(layout.root, path))})`)
  if (named.length === 0) return error
  const advice = `If the disk of ${layout.root} is full, remove what you no longer need of these copies of files that were changed on this host, oldest first: ${named.join(', ')}.`
  return new DeploymentError(error.code, `${asSentence(error.message)} ${advice}`, { cause: error })
}

/** Returns no paths if they cannot be read: the error is about something else. */
function tryListCopies(layout: Layout): string[] {
  try {
    return listCopies(layout)
  } catch {
    return []
  }
}

/**
 * Returns the paths, relative to the project root, of the modified snapshots without kept paths and of what was set
 * aside, oldest first.
 */
function listCopies(layout: Layout): string[] {
  const { installed, removed } = readHostRecord(layout)
  const snapshots = [...installed, ...removed].flatMap(row =>
    existingSnapshots(snapshotsPath(layout, partOf(row)), row.snapshots)
      .filter(snapshot => !isGenuine(snapshot) && !isIrreplaceable(snapshot))
      .map(snapshot => ({ ...copyIn(snapshot), path: `.hub-deploy/snapshots/${nameOf(row)}/${snapshot.name}` })),
  )
  const aside = copiesAside(layout.root).map(copy => ({ ...copy, path: `${SET_ASIDE}/${copy.name}` }))
  return [...snapshots, ...aside].toSorted((a, b) => (a.madeAt || 0) - (b.madeAt || 0)).map(({ path }) => path)
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

/**
 * Moves from a staged tree to the trash the paths that the host keeps. Returns those that the artifact had shipped.
 */
export function dropShipped(layout: Layout, staged: string, kept: readonly string[]): string[] {
  const shipped = kept.filter(path => pathExistsSync(join(staged, path)))
  for (const path of shipped) moveToTrash(layout, join(staged, path))
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
