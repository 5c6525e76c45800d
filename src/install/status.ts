import { lstatSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { ConfigError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { comparePaths } from '../core/trust/tree-digest.ts'
import { toHostError } from './files/errors.ts'
import { isSamePath, pathBelow } from './files/spelling.ts'
import { FileDigester } from './files/time-slice.ts'
import { describeItemSync, isAbsent, isFile, lstatIfPresentSync, pathExistsSync } from './files/walk.ts'
import {
  installPath,
  type Layout,
  type Place,
  placeName,
  placeOf,
  placePath,
  snapshotsPath,
  treeRecordPath,
  usualDirectory,
} from './host/layout.ts'
import { type HostAccess, requireOwnKinds, requireSafeHost } from './host/ownership.ts'
import { readHostsDirectory } from './host/plugins-directory.ts'
import { presentRow } from './host/previous-install.ts'
import { type HostRecord, readHostRecord, withInstalled } from './host/record.ts'
import type { InstalledRow, SnapshotRow } from './host/rows.ts'
import { existingSnapshots } from './host/snapshots.ts'
import { type DeploymentFacts, nameRun } from './journal/facts.ts'
import { type CommitRecord, findCommit, type JournalRecord } from './journal/records.ts'
import { changedPlaces, isAnnounced, isInDoubt, readUnended } from './recovery/dead-run.ts'
import {
  type Difference,
  findDifferences,
  findNoDirectory,
  hasSameBytes,
  isOwnerKept,
  type NoDirectory,
} from './trees/compare.ts'
import { whyNotCompared } from './trees/drift.ts'
import { readTreeRecord } from './trees/record.ts'

/** An installed part, as it was found. */
export interface InspectedPart extends Place {
  readonly row: InstalledRow
  /**
   * Undefined if the files are those that were installed, or, if the row says `modified`, those of the modified
   * snapshot that was restored.
   */
  readonly drift: PartDrift | undefined
}

/** True if a part differs, or may differ, from what was installed or from the artifact. */
export function isPartDrifted({ row, drift }: Pick<InspectedPart, 'row' | 'drift'>): boolean {
  return drift !== undefined || row.modified === true
}

/**
 * True if a part was restored from a modified snapshot, or if installed files differ or could not be compared for a
 * lasting reason. Undefined while a deployment, in progress or interrupted, makes the answer unknown.
 */
export function isDrifted({ activity, parts }: Inspection): boolean | undefined {
  const found = parts.flatMap(({ drift }) => drift ?? [])
  if (parts.some(({ row }) => row.modified)) return true
  if (found.some(drift => drift.kind !== 'not compared' || !drift.isPassing)) return true
  return found.length > 0 || mayDiffer(activity) ? undefined : false
}

/** True if a part that no record names yet may be installed, as in a first install. */
function mayDiffer(activity: Activity): boolean {
  return activity.kind === 'busy' || (activity.kind === 'interrupted' && activity.inDoubt.size > 0)
}

/** A retained version. */
interface RetainedSnapshot extends Place {
  readonly row: SnapshotRow
  /** Absolute. */
  readonly path: string
}

/** The parts that are installed on a host, and whether their files are those that were installed. */
export interface Inspection {
  readonly activity: Activity
  readonly parts: readonly InspectedPart[]
  readonly snapshots: readonly RetainedSnapshot[]
  /** Directories without a record, next to parts or where parts usually are: `<directory>/<name>`. */
  readonly unrecorded: readonly string[]
  /** Whether this host has a `.hub-deploy/`. A host has had this folder since its first deployment. */
  readonly isKnown: boolean
}

export interface InspectionRequest extends HostAccess {
  readonly keepPaths: readonly string[]
}

interface InspectionTools {
  readonly log: Log
  readonly signal: AbortSignal
}

const MAX_PATHS = 2000
/** The maximum number of times to examine a host that changes during the examination. */
const MAX_ATTEMPTS = 3

/**
 * Examines a host without changing anything: waits for no lock and writes no file. The result describes one moment, or
 * says that a deployment is in progress. Throws ConfigError `invalid_input` if the root is not a directory,
 * DeploymentError `inconsistent` for a damaged record, and file system errors as `toHostError` returns them. Also
 * throws as `requireSafeHost`, `requireOwnKinds` and `readActivity` do.
 */
export async function inspectHost(request: InspectionRequest, { log, signal }: InspectionTools): Promise<Inspection> {
  const { layout } = request
  for (const accepted of requireSafeHost(request)) log.warning(accepted)
  try {
    requireDirectory(layout.root)
    requireOwnKinds(layout)
    for (let attempt = 1; ; attempt++) {
      const before = readTraces(layout)
      const inspection = await examine(request, signal)
      if (inspection.activity.kind === 'busy' || readTraces(layout) === before) return inspection
      if (attempt === MAX_ATTEMPTS) return givenUp(inspection)
      log.info('A deployment changed this host during the examination, so the host is examined again.')
    }
  } catch (error) {
    signal.throwIfAborted()
    throw toHostError(error, `examining ${layout.root}`)
  }
}

async function examine({ layout, keepPaths }: InspectionRequest, signal: AbortSignal): Promise<Inspection> {
  const activity = await readActivity(layout, signal)
  const record = readRecord(layout, activity)
  const { directory } = readHostsDirectory(layout)
  const rows = record.installed.map(row => presentRow(layout, row, directory))
  const setting: CheckSetting = { layout, keepPaths, signal, room: MAX_PATHS }
  const parts: InspectedPart[] = []
  for (const row of rows) parts.push({ ...placeOf(row), row, drift: await driftOf(setting, row, activity) })
  const unrecorded = activity.kind === 'quiet' ? findUnrecorded(layout, rows) : []
  return {
    activity,
    parts,
    snapshots: [...rows, ...record.removed].flatMap(row => snapshotsOf(layout, placeOf(row), row.snapshots)),
    unrecorded,
    isKnown: pathExistsSync(layout.own),
  }
}

/** Returns the record with the commit of a dead run, if there is one: the recovery will write that record. */
function readRecord(layout: Layout, activity: Activity): HostRecord {
  const record = readHostRecord(layout)
  const commit = activity.kind === 'interrupted' ? activity.commit : undefined
  return commit === undefined ? record : withInstalled(record, commit)
}

function findUnrecorded({ root }: Layout, rows: readonly InstalledRow[]): string[] {
  const places = rows.map(placeOf)
  const recorded = places.map(place => join(root, placePath(place)))
  const known = [...places.map(part => part.directory), usualDirectory('plugins'), usualDirectory('extensions')]
  const isFirst = (directory: string, index: number): boolean =>
    known.findIndex(other => isSamePath(join(root, other), join(root, directory))) === index
  const found = known
    .filter(isFirst)
    .flatMap(directory => (pathExistsSync(join(root, directory)) ? directoriesIn(root, directory) : []))
  return found.filter(path => !recorded.some(part => pathBelow(join(root, path), part) !== undefined)).toSorted()
}

function directoriesIn(root: string, directory: string): string[] {
  const entries = readdirSync(join(root, directory), { withFileTypes: true })
  return entries.filter(entry => entry.isDirectory()).map(({ name }) => `${directory}/${name}`)
}

/**
 * Compares a part, unless a deployment is changing the host or died while it was changing the part. In these cases, a
 * difference would mean nothing.
 */
async function driftOf(setting: CheckSetting, row: InstalledRow, activity: Activity): Promise<PartDrift | undefined> {
  if (activity.kind === 'busy') return waiting('a deployment is currently changing this host')
  if (activity.kind === 'interrupted' && activity.inDoubt.has(placeName(placeOf(row))))
    return waiting('an interrupted deployment of this part is waiting for its recovery')
  return await comparePart(setting, row)
}

function waiting(why: string): PartDrift {
  return { kind: 'not compared', why, isPassing: true }
}

function snapshotsOf(layout: Layout, place: Place, rows: readonly SnapshotRow[]): RetainedSnapshot[] {
  const folder = snapshotsPath(layout, place)
  return existingSnapshots(folder, rows).map(row => ({ ...place, row, path: join(folder, row.name) }))
}

/** Ends the examination if one deployment follows another: the last result may be from the middle of a deployment. */
function givenUp(inspection: Inspection): Inspection {
  const parts = inspection.parts.map(part => ({ ...part, drift: waiting('deployments keep changing this host') }))
  return { ...inspection, parts, activity: { kind: 'busy', holder: 'one deployment follows another' } }
}

/** Refuses a root that is not a directory. An empty result would hide a typo, or a disk that is not mounted. */
function requireDirectory(root: string): void {
  if (statSync(root, { throwIfNoEntry: false })?.isDirectory()) return
  throw new ConfigError(
    'invalid_input',
    `project-root ${root} is not a directory on this host, so it is not known what is installed: correct the path, or mount its disk first.`,
  )
}

/** The activity of deployments on a host. */
type Activity =
  | { readonly kind: 'quiet' }
  /**
   * A live run is changing or recovering the host; `holder` names that run, or says that one deployment follows
   * another.
   */
  | { readonly kind: 'busy'; readonly holder: string }
  | InterruptedRun

/** A run that died and has not been recovered yet. */
interface InterruptedRun {
  readonly kind: 'interrupted'
  /** How the run left the host, and what recovers it. */
  readonly sentence: string
  /** The run's commit, if there is one. The versions in the commit are installed, whatever the record says. */
  readonly commit: CommitRecord | undefined
  /** The names of the parts that may have neither the old nor the new version in place. */
  readonly inDoubt: ReadonlySet<string>
}

/**
 * Reads the journal and the lock. Throws DeploymentError `inconsistent` for a journal that is damaged or cannot be
 * read, and `unsafe_host` for a lock that is not a regular file of at most 64 KiB. Also throws the system's error, and
 * the signal's reason once the signal is aborted.
 */
async function readActivity(layout: Layout, signal: AbortSignal): Promise<Activity> {
  const other = await readUnended(layout, signal)
  if (other === undefined) return { kind: 'quiet' }
  return 'holder' in other ? { kind: 'busy', holder: other.holder } : interruptedRun(layout, other.records)
}

/** Returns a text that changes whenever a deployment begins, announces its first change, commits or ends. */
function readTraces(layout: Layout): string {
  const { own, installed } = layout
  return [settingsStamp(own), settingsStamp(installed), isAnnounced(layout)].join()
}

function interruptedRun(layout: Layout, records: readonly JournalRecord[]): InterruptedRun {
  const deployment = `The ${nameRun(factsIn(records))}`
  const known = { kind: 'interrupted', commit: findCommit(records) } as const
  const recovery = 'The next run, or dist/recover.js, recovers this host if possible.'
  if (known.commit !== undefined) {
    const sentence = `${deployment} was interrupted after its commit: its version is installed, but the cleanup is not complete. ${recovery}`
    return { ...known, inDoubt: new Set(), sentence }
  }
  const inDoubt = new Set(isInDoubt(layout) ? changedPlaces(records).map(placeName) : [])
  const state =
    inDoubt.size === 0 ? 'and none of its changes are left' : 'so its parts may be neither the old nor the new version'
  return { ...known, inDoubt, sentence: `${deployment} was interrupted, ${state}. ${recovery}` }
}

function factsIn(records: readonly JournalRecord[]): Partial<DeploymentFacts> {
  const facts = records.flatMap(entry => (entry.record === 'begin' || entry.record === 'facts' ? [entry.facts] : []))
  return Object.assign({}, ...facts)
}

function settingsStamp(path: string): string {
  try {
    const { ino, size, mtimeNs } = lstatSync(path, { bigint: true })
    return `${ino} ${size} ${mtimeNs}`
  } catch (error) {
    if (isAbsent(error)) return 'none'
    throw error
  }
}

/**
 * How one path differs. `mode`: the same bytes with a different mode. `replaced`: an entry of a different kind.
 * `writable`: a directory that the group or others can write to, unlike any that a deployment makes.
 */
export type How = 'added' | 'removed' | 'changed' | 'mode' | 'replaced' | 'writable'

/** One differing path, relative to the part's directory; `.` is the directory itself. */
interface PathDrift {
  readonly path: string
  readonly how: How
}

/** How an installed part differs from what was installed, or why this is not known. */
export type PartDrift =
  /** `paths` is in order and contains as many paths as there was room for; `count` includes the rest. */
  | { readonly kind: 'differs'; readonly paths: readonly PathDrift[]; readonly count: number }
  | { readonly kind: 'no directory'; readonly instead: NoDirectory }
  /**
   * `isPassing`: the reason lasts only until the deployment in progress ends, or the interrupted deployment is
   * recovered.
   */
  | { readonly kind: 'not compared'; readonly why: string; readonly isPassing: boolean }

/** The settings of a check, and the limit that all parts share. */
interface CheckSetting {
  readonly layout: Layout
  /** Keep-paths in addition to those that each part was installed with. */
  readonly keepPaths: readonly string[]
  readonly signal: AbortSignal
  /** The number of differing paths that all parts together may still list. */
  room: number
}

/**
 * Compares the files of an installed part with those that were installed. Returns undefined if they do not differ, and
 * a reason if they could not be compared. Does not read a file whose inode and times show that it is unchanged. Throws
 * only the signal's reason.
 */
async function comparePart(setting: CheckSetting, row: InstalledRow): Promise<PartDrift | undefined> {
  const { layout, signal } = setting
  try {
    const instead = findNoDirectory(installPath(layout, placeOf(row)))
    if (instead !== undefined) return { kind: 'no directory', instead }
    return await compare(setting, row)
  } catch (error) {
    signal.throwIfAborted()
    return { kind: 'not compared', why: whyNotCompared(error, layout, row), isPassing: false }
  }
}

async function compare(setting: CheckSetting, row: InstalledRow): Promise<PartDrift | undefined> {
  const { layout, signal } = setting
  const record = readTreeRecord(layout, row)
  if (record === undefined) return { kind: 'not compared', why: withoutRecord(layout, row), isPassing: false }
  const keepPaths = [...row.keep_paths, ...setting.keepPaths]
  const root = installPath(layout, placeOf(row))
  const paths: PathDrift[] = []
  let count = 0
  const hasRoom = (): boolean => {
    count += 1
    return setting.room-- > 0
  }
  const onDirectory = (path: string): void => {
    if (isExposed(root, path) && hasRoom()) paths.push({ path: path === '' ? '.' : path, how: 'writable' })
  }
  const tree = { root, keepPaths, digester: new FileDigester(signal), onDirectory }
  for await (const difference of findDifferences(tree, record, signal)) {
    if (!hasRoom()) continue
    const { path } = difference.recorded ?? difference.found
    paths.push({ path, how: await howOf(difference, tree) })
  }
  paths.sort((a, b) => comparePaths(a.path, b.path))
  return count === 0 ? undefined : { kind: 'differs', paths, count }
}

/**
 * True if another account can change the contents of a directory. Python's caches may belong to another account, and
 * the group may write to them, because Python makes them as the service, with the service's umask.
 */
function isExposed(root: string, path: string): boolean {
  const found = lstatIfPresentSync(`${root}/${path}`)
  if (found === undefined) return false
  if (/(?:^|\/)__pycache__$/.test(path)) return (found.mode & 0o002) !== 0
  return (found.mode & 0o022) !== 0 || found.uid !== (process.getuid?.() ?? found.uid)
}

async function howOf({ recorded, found }: Difference, tree: { root: string; digester: FileDigester }): Promise<How> {
  if (recorded === undefined) return 'added'
  if (found === undefined) return describeItemSync(tree.root, recorded.path) === undefined ? 'removed' : 'replaced'
  if (isFile(recorded) !== isFile(found)) return 'replaced'
  if (!isFile(found) || (recorded.kind === found.kind && isOwnerKept(recorded, found))) return 'changed'
  return (await hasSameBytes(recorded, found, tree)) ? 'mode' : 'changed'
}

function withoutRecord(layout: Layout, { tree_record: record }: InstalledRow): string {
  if (record === undefined)
    return 'There is no record of its files. The next deployment that changes this part writes a record.'
  return `${treeRecordPath(layout, record)}, the record of its files, is missing. Deploy this version again to write a new record.`
}
