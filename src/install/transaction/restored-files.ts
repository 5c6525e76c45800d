import type { Log } from '../../core/log.ts'
import { listFirst } from '../../core/quantities.ts'
import type { Grace } from '../files/grace.ts'
import { toHostError } from '../files/system-errors.ts'
import { pathExistsSync } from '../files/trees/tree-walk.ts'
import { findInstalled, readInstalled } from '../host/installed/host-record.ts'
import { placeOf } from '../host/installed/row-place.ts'
import { installPath, isSamePlace, type Layout, type Place, placePath } from '../host/layout.ts'
import { compareInstalled, findRecordedIn } from '../host/trees/drift.ts'
import { findLater, readDriftNote } from '../host/trees/drift-note.ts'
import { findMoving } from '../host/trees/moving-files.ts'

/** The most paths that one sentence lists. */
const MAX_NAMED = 5

/** The files of the old version, once they are back. */
export interface RestoredFiles {
  readonly layout: Layout
  readonly log: Log
  /** The time limits for the rollback after a cancel. */
  readonly grace: Grace
  /** The places that a tree was moved out of or into, or was about to be. */
  readonly places: readonly Place[]
  readonly keepPaths: readonly string[]
  /** The deployment's staging folder, which contains the notes about files that were changed before the deployment. */
  readonly stagingFolder: string
  /** Whether to read all restored files: after a crash, their times prove nothing. */
  readonly byContent: boolean
}

/** The comparison of the restored trees with their records. */
export interface Verification {
  /** Null if nothing was compared, or if some files are not known to be as they were installed. */
  readonly verified: boolean | null
  /** One sentence each. */
  readonly problems: readonly string[]
}

const NOT_COMPARED = 'The restored files could not be compared with their record: '
const UNKNOWN: Verification = { verified: null, problems: [] }

/**
 * Compares the restored trees with their records. A recorded file of the old version counts as damaged if it is missing
 * or different. It does not count if that was already the case before the deployment, or if another process wrote the
 * file or is renaming it. A tree with only other differences counts as not verified. Never throws.
 */
export async function verifyRestored(files: RestoredFiles): Promise<Verification> {
  try {
    return await verifyPlaces(files)
  } catch (error) {
    return notVerified(files, error)
  }
}

async function verifyPlaces(files: RestoredFiles): Promise<Verification> {
  const found = await Promise.all(files.places.map(place => verifyPlace(place, files)))
  const restored = found.filter(verification => verification !== undefined)
  const isAll = restored.length > 0 && restored.every(({ verified }) => verified === true)
  const isDamaged = restored.some(({ verified }) => verified === false)
  return { verified: isDamaged ? false : isAll || null, problems: restored.flatMap(({ problems }) => problems) }
}

/** If the comparison only ran out of time, no damage is known. */
function notVerified({ grace }: RestoredFiles, error: unknown): Verification {
  if (grace.comparing.aborted) return UNKNOWN
  const { message } = toHostError(error, 'reading them')
  return { problems: [`${NOT_COMPARED}${message}`], verified: false }
}

/** Returns undefined if there is nothing to compare and the place is empty. */
async function verifyPlace(place: Place, files: RestoredFiles): Promise<Verification | undefined> {
  const { layout, log, grace, keepPaths, byContent } = files
  const root = installPath(layout, place)
  const note = isInstalledIn(layout, place) ? readDriftNote(files.stagingFolder, place) : undefined
  const thoroughly = { byContent, signal: grace.comparing }
  const found = note && (await compareInstalled({ layout, log }, { ...place, keepPaths }, thoroughly))
  if (note === undefined || found === undefined) return pathExistsSync(root) ? UNKNOWN : undefined
  const name = placePath(place)
  if (note.modified)
    log.notice(
      `The files of ${name} are not verified, because they differed from the installed version even before this deployment.`,
    )
  const recorded = findRecordedIn(layout, place)
  const before = { root, note, recorded, isAfterCrash: byContent }
  const { damaged: missed, written } = await findLater(before, found)
  const moving = await findMoving(before, missed, grace.comparing)
  const damaged = missed.filter(path => !moving.has(path))
  const problems = [
    ...damaged.map(path => `${name}/${path} is not as it was before the deployment`),
    ...written.map(
      path => `${name}/${path} was written by another process after the deployment began, and was left as it is`,
    ),
    ...(moving.size === 0 ? [] : [describeMoving([...moving].map(path => `${name}/${path}`))]),
  ]
  const isIntact = !note.modified && written.length + moving.size === 0
  return { verified: damaged.length > 0 ? false : isIntact || null, problems }
}

const MOVING = 'Another process renames files or directories back and forth, so these paths are missing at times: '

/** Describes files of a restored tree that were missing only because another process was renaming them. */
export function describeMoving(paths: readonly string[]): string {
  return `${MOVING}${listFirst(paths, MAX_NAMED)}`
}

/**
 * True if a rollback's problem concerns files, in one of these places if it names any. Restoring services does not solve such a
 * problem.
 */
export function isOfFile(problem: string, places: readonly Place[]): boolean {
  const paths = places.map(place => `${placePath(place)}/`)
  if (problem.startsWith(NOT_COMPARED)) return true
  return paths.some(path => problem.startsWith(path) || problem.startsWith(`${MOVING}${path}`))
}

/** False for a directory to which a version was about to move from another directory. */
export function isInstalledIn(layout: Layout, place: Place): boolean {
  try {
    const row = findInstalled(readInstalled(layout), place)
    return row === undefined || isSamePlace(placeOf(row), place)
  } catch {
    // The comparison reports what is wrong with `installed.json`.
    return true
  }
}
