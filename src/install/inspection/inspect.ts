import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { ConfigError } from '../../core/errors.ts'
import { isBelow } from '../../core/is-below.ts'
import type { Log } from '../../core/log.ts'
import { toHostError } from '../files/system-errors.ts'
import { pathExistsSync } from '../files/trees/tree-walk.ts'
import { readHostRecord, withInstalled } from '../host/installed/host-record.ts'
import type { HostRecord } from '../host/installed/record-file.ts'
import { placeOf } from '../host/installed/row-place.ts'
import type { InstalledRow, SnapshotRow } from '../host/installed/rows.ts'
import { type Layout, type Place, placeName, placePath, snapshotsPath, usualDirectory } from '../host/layout.ts'
import { requireOwnKinds } from '../host/ownership/own-kinds.ts'
import { type HostAccess, requireSafeHost } from '../host/ownership/ownership.ts'
import { existingSnapshots } from '../host/snapshots.ts'
import { requireNothingStranded } from '../host/switchable.ts'
import { type Activity, readActivity, readTraces } from './activity.ts'
import { type CheckSetting, checkPart, type PartDrift } from './part-check.ts'

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
 * True if a part was restored from a modified snapshot, if installed files differ or could not be compared for a
 * lasting reason, or if the host's record is lost. Undefined while a deployment, in progress or interrupted, makes the
 * answer unknown.
 */
export function isDrifted({ activity, parts, isRecordLost }: Inspection): boolean | undefined {
  const found = parts.flatMap(({ drift }) => drift ?? [])
  if (isRecordLost || parts.some(({ row }) => row.modified)) return true
  if (found.some(drift => drift.kind !== 'not compared' || !drift.isPassing)) return true
  return found.length > 0 || mayDiffer(activity) ? undefined : false
}

/** True if a part that no record names yet may be installed, as in a first install. */
function mayDiffer(activity: Activity): boolean {
  return activity.kind === 'busy' || (activity.kind === 'interrupted' && activity.inDoubt.size > 0)
}

/** A retained version. */
export interface RetainedSnapshot extends Place {
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
  /**
   * Whether `installed.json` is missing although tree records, and directories without a record, show that parts were
   * installed.
   */
  readonly isRecordLost: boolean
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

/** The maximum number of differing paths to list. */
const MAX_PATHS = 2000
/** The maximum number of times to examine a host that changes during the examination. */
const MAX_ATTEMPTS = 3

/**
 * Examines a host without changing anything: waits for no lock and writes no file. The result describes one moment, or
 * says that a deployment is in progress. Throws ConfigError `invalid_input` if the root is not a directory,
 * DeploymentError `inconsistent` for a damaged record, and file system errors as `toHostError` returns them. Also
 * throws as `requireSafeHost`, `requireOwnKinds`, `readActivity` and `requireNothingStranded` do.
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
  // A live run reports a stranded path itself, or moves it back.
  if (activity.kind !== 'busy') requireNothingStranded(layout)
  const record = readRecord(layout, activity)
  const rows = record.installed
  const setting: CheckSetting = { layout, keepPaths, signal, room: MAX_PATHS }
  const parts: InspectedPart[] = []
  for (const row of rows) parts.push({ ...placeOf(row), row, drift: await driftOf(setting, row, activity) })
  const unrecorded = activity.kind === 'quiet' ? findUnrecorded(layout, rows) : []
  return {
    activity,
    parts,
    snapshots: [...rows, ...record.removed].flatMap(row => snapshotsOf(layout, placeOf(row), row.snapshots)),
    unrecorded,
    isRecordLost: unrecorded.length > 0 && !pathExistsSync(layout.installed) && hasTreeRecords(layout),
    isKnown: pathExistsSync(layout.own),
  }
}

/**
 * Returns the record with the commit of a dead run, if there is one. The journal of a dead run contains a copy of the
 * record. The copy counts if the run has not committed, even if another process has since changed the file. The copy
 * also counts if the run has committed but the file is gone. The recovery writes the file again, with the commit.
 */
function readRecord(layout: Layout, activity: Activity): HostRecord {
  const { commit, found } = activity.kind === 'interrupted' ? activity : {}
  const isCurrent = commit !== undefined && pathExistsSync(layout.installed)
  const record = found === undefined || isCurrent ? readHostRecord(layout) : found
  return commit === undefined ? record : withInstalled(record, { removed: [], ...commit })
}

function findUnrecorded({ root }: Layout, rows: readonly InstalledRow[]): string[] {
  const places = rows.map(placeOf)
  const recorded = places.map(placePath)
  const known = new Set([
    usualDirectory('plugins'),
    usualDirectory('extensions'),
    ...places.map(part => part.directory),
  ])
  const found = [...known].flatMap(directory =>
    pathExistsSync(join(root, directory)) ? directoriesIn(root, directory) : [],
  )
  return found.filter(path => !recorded.some(isBelow([path]))).toSorted()
}

function hasTreeRecords({ trees }: Layout): boolean {
  return pathExistsSync(trees) && readdirSync(trees).length > 0
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
  return await checkPart(setting, row)
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
