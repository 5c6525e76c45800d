import { join, posix } from 'node:path'
import { DEFAULT_ENTRY_POINT, parsePluginYaml } from '../../core/content/plugin-yaml.ts'
import { DeploymentError } from '../../core/errors.ts'
import { isBelow, keepPathProblem, PLUGIN_YAML_LIMITS, versionSchema } from '../../core/identifiers.ts'
import type { Log } from '../../core/log.ts'
import { type InstalledState, isSameVersion } from '../../core/trust/versions.ts'
import { readSmallFileSync } from '../files/open.ts'
import { asListed, isSamePath } from '../files/spelling.ts'
import { pathExistsSync } from '../files/walk.ts'
import {
  installPath,
  type Layout,
  type Place,
  placeAt,
  placeOf,
  placePath,
  rowIn,
  snapshotsPath,
  usualDirectory,
} from './layout.ts'
import { knownDirectories } from './plugins-directory.ts'
import { findInstalled, readHostRecord } from './record.ts'
import { type InstalledRow, isFrom, type Origin, type RemovedRow, type SnapshotRow, snapshotsFrom } from './rows.ts'
import { presentPaths } from './snapshots.ts'
import { findRealDirectory } from './switchable.ts'

/** The state of a part before a deployment changes anything. */
export interface PreviousInstall {
  /** Our record of the installed version; see `presentRow`. */
  readonly installed: InstalledRow | undefined
  /** Our record of a removed part and its snapshots. */
  readonly removed: RemovedRow | undefined
  /** The version that is in the place (see `versionInPlace`); null if it is not known. */
  readonly version: string | null
}

/** A part in the place that it will have, and what it replaces. */
export interface ReplacingPart extends Place {
  readonly previous: PreviousInstall
}

/** Reads the state of a part that will be installed in this place. */
export function readPreviousInstall(layout: Layout, target: Place): PreviousInstall {
  const record = readHostRecord(layout)
  const row = findInstalled(record.installed, target)
  const removed = findInstalled(record.removed, target)
  const installed = row && presentRow(layout, row, target.directory)
  const version = installed ? versionInPlace(layout, installed) : readForeignVersion(installPath(layout, target))
  return { installed, removed, version }
}

/**
 * Returns the version of the tree in the place of a recorded part: the recorded one, unless the plugin.yaml there names
 * another, because somebody else has replaced the tree. Returns null for a tree that is known not to match its record,
 * and whose plugin.yaml names no version.
 */
export function versionInPlace(layout: Layout, row: InstalledRow, isModified = false): string | null {
  const { kind, version, keep_paths: kept } = row
  const isOwn = kind === 'plugin' && !kept.includes('plugin.yaml')
  const own = isOwn ? readForeignVersion(installPath(layout, placeOf(row))) : null
  if (own === null) return isModified ? null : version
  return version !== null && isSameVersion(own, version) ? version : own
}

/**
 * Like `versionInPlace`, before a run has taken the host. While a dead run waits for its recovery, the recorded version
 * counts: the recovery restores it, or records another.
 */
export function versionAtStart(layout: Layout, row: InstalledRow): string | null {
  return pathExistsSync(layout.journal) ? row.version : versionInPlace(layout, row)
}

/**
 * Returns the row of an installed part with its present directory. If the recorded directory does not contain a plugin
 * but `directory` does, the operator has moved the plugin there.
 */
export function presentRow(layout: Layout, row: InstalledRow, directory: string | undefined): InstalledRow {
  if (row.kind !== 'plugin' || directory === undefined) return row
  const [recorded, other] = [placeOf(row), { ...placeOf(row), directory }]
  const isMoved = !pathExistsSync(installPath(layout, recorded)) && pathExistsSync(installPath(layout, other))
  return isMoved ? rowIn(row, other) : row
}

/**
 * Returns the versions from this origin that our record lists for an installed part (the installed one and the
 * snapshots), or none if the part is not installed. Versions from other origins cannot be compared with these.
 */
export function versionsFrom({ installed }: PreviousInstall, origin: Origin): (InstalledRow | SnapshotRow)[] {
  if (installed === undefined) return []
  return [...(isFrom(installed, origin) ? [installed] : []), ...snapshotsFrom(installed, origin)]
}

/**
 * If nothing is in the place, returns the absolute path of the newest snapshot that contains kept paths of this origin,
 * if there is one. Otherwise returns undefined: a version in the place has its own kept paths.
 */
export function findLeftBehind(layout: Layout, part: ReplacingPart, origin: Origin): string | undefined {
  const row = part.previous.installed ?? part.previous.removed
  const newest = pathExistsSync(installPath(layout, part)) ? undefined : newestWithKept(row, origin)
  return newest && join(snapshotsPath(layout, part), newest.name)
}

function newestWithKept(row: RemovedRow | undefined, origin: Origin): SnapshotRow | undefined {
  return row && snapshotsFrom(row, origin).findLast(snapshot => snapshot.kept_paths !== undefined)
}

/** The paths that a run names itself, and the origin whose snapshots it may use, if any. */
interface Keeping {
  readonly named: readonly string[]
  readonly origin?: Origin | undefined
}

/**
 * Returns the paths, as the host lists them, that the last deployment of a part kept, that still exist, and that are
 * not at or below a path that this run names. These paths stay. For a part whose directory is gone, they are the kept
 * paths in the snapshot that `findLeftBehind` finds.
 *
 * What runs must come from the artifact, whatever a record below the project root says. So this function leaves out
 * every path that is not a valid keep-path, a plugin's entry point with all directories above it, and bytecode caches.
 * Returns nothing if the record cannot be read: a later step reads it again and reports the problem. Throws the system's
 * error if a path cannot be examined, because it would not stay.
 */
export function findStickyPaths(layout: Layout, place: Place, { named, origin }: Keeping): string[] {
  const { installed, removed } = tryToFindRows(layout, place)
  const path = installPath(layout, place)
  if (pathExistsSync(path)) return stickyIn(path, place, { recorded: installed?.keep_paths ?? [], named })
  const left = origin && newestWithKept(installed ?? removed, origin)
  const root = left && join(snapshotsPath(layout, place), left.name)
  return root === undefined ? [] : stickyIn(root, place, { recorded: left?.kept_paths ?? [], named })
}

function tryToFindRows(layout: Layout, place: Place): Partial<Pick<PreviousInstall, 'installed' | 'removed'>> {
  try {
    const record = readHostRecord(layout)
    return { installed: findInstalled(record.installed, place), removed: findInstalled(record.removed, place) }
  } catch {
    return {}
  }
}

function stickyIn(
  root: string,
  { shelf }: Place,
  { recorded, named }: Pick<Keeping, 'named'> & { readonly recorded: readonly string[] },
): string[] {
  const isNamed = isBelow(named)
  const valid = recorded.filter(path => keepPathProblem(path) === undefined && !isNamed(path))
  // Most runs name all these paths, and do not need to read plugin.yaml.
  const present = valid.length === 0 ? [] : presentPaths(root, valid)
  const entryPoint = present.length > 0 && shelf === 'plugins' ? asListed(root, readEntryPoint(root)) : ''
  return present.filter(
    path => !isNamed(path) && !isBelow([path])(entryPoint) && !path.split('/').includes('__pycache__'),
  )
}

/** Returns the path of the file at which the host framework starts a plugin, as its plugin.yaml or the default says. */
export function readEntryPoint(root: string): string {
  try {
    const text = readSmallFileSync(join(root, 'plugin.yaml'), PLUGIN_YAML_LIMITS.bytes)
    return posix.normalize((text && parsePluginYaml(text).entryPoint) || DEFAULT_ENTRY_POINT)
  } catch {
    return DEFAULT_ENTRY_POINT
  }
}

/**
 * Returns the state that `latest` is compared with. A version from another origin is left out, because it says nothing
 * about the versions from this origin.
 */
export function stateFor({ installed, version }: PreviousInstall, origin: Origin): InstalledState {
  const isOurs = installed !== undefined && isFrom(installed, origin)
  // A tree that somebody else put in the place does not allow a downgrade.
  return { version: installed === undefined ? version : isOurs ? installed.version : null, isOurs }
}

/** Returns a report's facts about the replaced version. Logs a notice if this action has no record of it. */
export function factsOfReplaced(
  layout: Layout,
  { previous: { installed }, ...place }: ReplacingPart,
  log: Log,
): { previous_sha256?: string; unrecorded?: true } {
  if (installed !== undefined)
    return installed.artifact_sha256 === null ? {} : { previous_sha256: installed.artifact_sha256 }
  if (!pathExistsSync(installPath(layout, place))) return {}
  log.notice(`This action has no record of ${placePath(place)}: a deployment replaces it and keeps it as a snapshot.`)
  return { unrecorded: true }
}

/** A deployment's claim to a place. */
interface Claim {
  readonly origin: Origin
  /** Whether the operator allows this deployment to replace parts that others installed. */
  readonly allowTakeover: boolean
  /** Who chose the part's id. */
  readonly chosenBy: Exclude<Chooser, 'host'>
}

/**
 * Throws DeploymentError `place_taken` if another recorded plugin, service or project has this place. With
 * `allowTakeover`, logs a warning instead. Also logs the kept paths of other origins in the snapshots of a removed
 * part.
 */
export function verifyPlace(previous: PreviousInstall, claim: Claim, log: Log): void {
  const { origin } = claim
  const { installed, removed } = previous
  if (removed !== undefined) noticeOthersPaths(removed, origin, log)
  if (installed === undefined || isFrom(installed, origin)) return
  const place = placeOf(installed)
  const owner = `the ${installed.contract === 'project' ? 'project' : installed.kind} ${installed.slug}`
  if (!claim.allowTakeover) throw placeTaken(place, owner, claim.chosenBy)
  log.warning(
    `This deployment takes over ${placePath(place)}, where ${owner} is installed. If both continue to be deployed to this place, each replaces the other. Give them different ids or project roots.`,
  )
}

function noticeOthersPaths(removed: RemovedRow, origin: Origin, log: Log): void {
  for (const { name, kept_paths: kept, origin: owner = removed } of removed.snapshots) {
    if (kept !== undefined && !isFrom(owner, origin))
      log.notice(
        `Snapshot ${name} of ${placePath(placeOf(removed))} contains kept paths of ${owner.slug} (${kept.join(', ')}). They stay in the snapshot.`,
      )
  }
}

/**
 * Does the same as `verifyPlace` for a part of a project. The project's publisher chooses the part's id and directory,
 * so an existing part with this id but without a record counts as someone else's. Neither the shelf nor the directory
 * of an existing part matters, because services and commands know parts by id alone.
 */
export function verifyProjectPlace(layout: Layout, place: Place, claim: Claim & { readonly log: Log }): void {
  const known: string[] = []
  for (const shelf of ['plugins', 'extensions'] as const) {
    const directory = shelf === place.shelf ? place.directory : usualDirectory(shelf)
    const previous = readPreviousInstall(layout, { id: place.id, shelf, directory })
    verifyPlace(previous, claim, claim.log)
    const path = previous.installed && findRealPath(layout, placeOf(previous.installed))
    if (path !== undefined) known.push(path)
  }
  for (const other of placesOf(layout, place)) {
    const path = findRealPath(layout, other)
    if (path === undefined || known.some(one => isSamePath(one, path)) || !pathExistsSync(path)) continue
    known.push(path)
    if (!claim.allowTakeover) throw placeTaken(other, 'a part that this action has no record of', claim.chosenBy)
    claim.log.warning(`This project takes over ${placePath(other)}, a part that this action has no record of.`)
  }
}

/** Returns every place on this host where a part with this id may be, or will be. */
function placesOf(layout: Layout, { id, directory: chosen }: Place): Place[] {
  const directories = [...new Set([chosen, ...knownDirectories(layout), usualDirectory('extensions')])]
  return directories.map(directory => placeAt(`${directory}/${id}`))
}

/** True if two places are, or would be, the same path on this host, or if both lead nowhere. */
export function isSameOnHost(layout: Layout, place: Place, other: Place): boolean {
  const [path, otherPath] = [findRealPath(layout, place), findRealPath(layout, other)]
  return path === undefined || otherPath === undefined ? path === otherPath : isSamePath(path, otherPath)
}

/** Returns the real path of a place, whether anything is there or not; undefined if its directory leads nowhere. */
function findRealPath(layout: Layout, { directory, id }: Place): string | undefined {
  const real = findRealDirectory(layout, directory)
  return real === undefined ? undefined : join(real, id)
}

const MAKE_WAY: Readonly<Record<Claim['chosenBy'], string>> = {
  operator: 'Use another id or project root',
  publisher: 'Use another project root, or ask the publisher for another id',
  rollback: 'Roll back to another version',
}

function placeTaken(place: Place, owner: string, chosenBy: Claim['chosenBy']): DeploymentError {
  return new DeploymentError(
    'place_taken',
    `${placePath(place)} is taken: ${owner} is installed there. This run would replace it and take over its kept paths, or act on its service. Nothing was changed. ${MAKE_WAY[chosenBy]}; if you mean to replace it, deploy with allow-takeover: true.`,
  )
}

/** Returns the version in the plugin.yaml of a part without a record; null if there is no usable version. */
function readForeignVersion(path: string): string | null {
  try {
    const text = readSmallFileSync(join(path, 'plugin.yaml'), PLUGIN_YAML_LIMITS.bytes)
    return text === undefined ? null : (versionSchema.safeParse(parsePluginYaml(text).version).data ?? null)
  } catch {
    return null
  }
}

/**
 * Who chose the directory or the id of a part. `operator` chose it for this run. `host` means the host's own file, our
 * record or the default. `publisher` is the publisher of a project. `rollback` means that a version is restored with
 * its former directory or id.
 */
export type Chooser = 'operator' | 'host' | 'publisher' | 'rollback'

/** Advice for the reader of an error, as a clause: how to install a part in a different directory. */
export const CHOOSE_ANOTHER: Readonly<Record<Chooser, string>> = {
  operator: 'choose another plugins directory',
  host: 'choose another plugins directory',
  publisher: 'ask the publisher for another plugins_dirname',
  rollback: 'roll back to another version',
}

/** Advice for the reader of an error, as a clause: how to leave a part in its current directory. */
export const KEEP_PREVIOUS: Readonly<Record<Chooser, string>> = {
  operator: 'keep the previous plugins directory',
  host: 'keep the previous plugins directory',
  publisher: 'ask the publisher to keep the previous plugins_dirname',
  rollback: 'roll back to another version',
}
