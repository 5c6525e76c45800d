import { join } from 'node:path'
import { type DeployError, toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { listFirst } from '../../core/text.ts'
import type { Grace } from '../files/child-process.ts'
import { isSystemError, toHostError } from '../files/errors.ts'
import { pathExistsSync } from '../files/walk.ts'
import { installPath, type Layout, type Place, placePath } from '../host/layout.ts'
import { findStickyPaths, versionInPlace } from '../host/previous-install.ts'
import { findInstalled, pendingIn, readInstalled, recordPending } from '../host/record.ts'
import { type InstalledRow, isFrom, type PendingService } from '../host/rows.ts'
import type { DeploymentEnd, DeploymentFacts, RollbackFacts } from '../journal/facts.ts'
import { restoreServices, type ServiceChange, type ServiceStarts } from '../services/changes.ts'
import { findUnhealthy, isExamining, type RestoredCheck } from '../services/health.ts'
import { describePart, describeService } from '../services/supervise.ts'
import { compareInstalled, findLater, findMoving, findRecordedIn, isHidden, readDriftNote } from '../trees/drift.ts'

export interface FailedRun extends RestoredFiles {
  /** The contract and the slug of the deployment, whose parts its project-wide unit runs. */
  of: Restorations['of']
  services: readonly ServiceChange[]
  /** The services that the deployment acted on, and that this run cannot restore. */
  unreachable?: readonly UnreachableService[]
  /** Returns the checks of the old version; called once the services are restored. */
  healthchecks(): Promise<readonly RestoredCheck[]>
  /** Undoes the changes to files; resolves to whether any of them had been made. */
  undo(): Promise<boolean>
  /** Whether an earlier attempt has undone a change that had been made. */
  wasUndone?: boolean
  /** The host's files that the undo could not put back, one sentence each; complete once `undo` has ended. */
  lost?: readonly string[] | undefined
  /** Why the undo is not durable; complete once `undo` has ended. */
  unsynced?: readonly DeployError[] | undefined
  /** Called once all changes to files are undone, before any service is restored. */
  onFilesRestored?: OnFilesRestored | undefined
}

/**
 * `isVerified` is false if restored files do not match their record. Resolves to a value that says when the services
 * start.
 */
export type OnFilesRestored = (isVerified: boolean, services: readonly ServiceChange[]) => Promise<ServiceStarts>

/** A service that a state file names, but for which the host config of this run has no service. */
export interface UnreachableService {
  readonly part: string | null
  readonly was_running: boolean
  /** Completes the sentence that begins with what was not done. */
  readonly why: string
}

/** The work that a run leaves to its post step or to another run. */
export interface LeftWork {
  /**
   * A cancelled run had no time to restore all services, or a run could not make its rollback durable: another run has
   * to finish it.
   */
  readonly isUnfinished?: boolean
  /** Why the undo is not durable, or why the run could not record which services it restored. */
  readonly unwritten?: DeployError | undefined
  /** The checks of the old version that a cancelled run had no time for. */
  readonly unchecked?: readonly RestoredCheck[] | undefined
}

/** How a rollback ended; `rollback` is null if nothing had been changed. */
export interface RolledBack extends Pick<DeploymentEnd, 'rollback'>, LeftWork {
  readonly outcome: Exclude<DeploymentEnd['outcome'], 'success' | 'interrupted'>
}

/** How a run ended, before that is reported. */
export interface RunEnd extends LeftWork {
  readonly end: DeploymentEnd
  /** The error that made the run fail, as it was thrown. */
  readonly error?: DeployError | undefined
  /** Whether a kept path could not be put back. The staged files may then contain a copy of it. */
  readonly hasLost?: boolean
  /** Whether the cleanup after a commit is not complete. */
  readonly isUncleaned?: boolean
}

/**
 * Rolls a deployment back. Restores the files, and then the previous state of the services, so the services use the old
 * files. Compares the restored trees with their records, and runs the plan's health checks on the old version. After a
 * cancel, does no more than the grace allows. Problems of the rollback are not thrown: the result contains them.
 */
export async function rollBack(request: FailedRun): Promise<RolledBack> {
  const { services, unreachable = [] } = request
  const known = [...services, ...unreachable]
  let wasChanged: boolean
  try {
    wasChanged = (await request.undo()) || request.wasUndone === true
  } catch (error) {
    await noteServices(request, { unrestored: known })
    const left = [...services.map(({ service }) => describeService(service)), ...unreachable.map(describeUnreachable)]
    const problems = [toDeployError(error).message, ...lostIn(request), ...left.map(leftAlone)]
    return { outcome: 'inconsistent', rollback: { restored: false, problems, verified: null, healthy: null } }
  }
  if (!wasChanged && known.length === 0) return { outcome: 'failed', rollback: null }
  for (const place of request.places) logRestored(request, place)
  const { problems: differences, verified } = await compareRestored(request)
  const starts = (await request.onFilesRestored?.(verified !== false, services)) ?? 'now'
  const { healthy, problems, untouched, ...left } = await restoreAndCheckServices(request, starts)
  const acted = known.filter(wasDisturbed)
  const isDisturbed = acted.some(({ part }) => !untouched.includes(part))
  return {
    outcome: verified === false ? 'inconsistent' : wasChanged || isDisturbed ? 'rolled_back' : 'failed',
    rollback: {
      restored: true,
      problems: [...lostIn(request), ...differences, ...problems],
      verified,
      healthy,
      // A recovery does not know what the run that died has done to the services.
      ...(acted.length > 0 && known.every(isObserved) && { stopped: isDisturbed }),
    },
    ...left,
  }
}

function lostIn({ lost = [] }: FailedRun): readonly string[] {
  return lost
}

/** Logs which version was restored at a place. Never throws, because all files are back. */
function logRestored({ layout, log }: FailedRun, place: Place): void {
  try {
    const isThere = pathExistsSync(installPath(layout, place))
    const version = isThere ? installedVersionIn(layout, place) : undefined
    log.did(`${placePath(place)} is ${describeRestored(isThere, version)}`)
  } catch {
    log.did(`${placePath(place)} is restored`)
  }
}

function describeRestored(isThere: boolean, version: string | undefined): string {
  if (!isThere) return 'not installed, as before'
  return version === undefined ? 'restored' : `${version} again`
}

function installedVersionIn(layout: Layout, place: Place): string | undefined {
  try {
    const row = findInstalled(readInstalled(layout), place)
    return (row && versionInPlace(layout, row)) ?? undefined
  } catch {
    return undefined
  }
}

type CheckedServices = Pick<RollbackFacts, 'healthy' | 'problems'> &
  LeftWork &
  Pick<Awaited<ReturnType<typeof restoreServices>>, 'untouched'>

async function restoreAndCheckServices(request: FailedRun, starts: ServiceStarts): Promise<CheckedServices> {
  const { services, unreachable = [], log, grace } = request
  const limits = { log, signal: grace.restoring, starts }
  const { isRunning, isFinished, isBroken, untouched, ...done } = await restoreServices(services, limits)
  const unrestored = [...services.filter(({ part }) => done.unrestored.includes(part)), ...unreachable]
  const restored = services.map(({ part }) => part).filter(part => !untouched.includes(part))
  const unnoted = await noteServices(request, { restored, unrestored })
  const unwritten = request.unsynced?.[0] ?? unnoted
  const problems = [...done.problems, ...unreachable.map(notRestored)]
  if (unwritten !== undefined)
    return { healthy: null, problems: [...problems, unwritten.message], untouched, isUnfinished: true, unwritten }
  if (!isFinished) return { healthy: null, problems, untouched, isUnfinished: true }
  if (done.problems.length > 0) return { healthy: isBroken ? false : null, problems, untouched }
  if (starts === 'queued') {
    log.info('Services start only once the unit of this recovery has started, so their health is not checked here.')
    return { healthy: null, problems, untouched }
  }
  if (!isRunning && services.length > 0) return { healthy: null, problems, untouched }
  const stale = services.filter(({ part }) => untouched.includes(part) && isPending(request.layout, part, request.of))
  if (stale.length > 0) return { healthy: null, problems: [...problems, ...stale.map(mayBeOther)], untouched }
  const all = await request.healthchecks()
  const checks = all.filter(check => check.previous_version !== null && isExamining(check))
  if (checks.length === 0) return { healthy: null, problems, untouched }
  try {
    const found = await findUnhealthy(checks, { log, signal: grace.cancelled })
    const healthy = found.healthy === true && unreachable.length > 0 ? null : found.healthy
    return { healthy, problems: [...problems, ...found.problems], untouched }
  } catch {
    return { healthy: null, problems, untouched, unchecked: checks }
  }
}

/** Describes a service that has the same process as before this run, although an earlier run was to restart it. */
function mayBeOther({ service }: ServiceChange): string {
  return `${describeService(service)} may run another version than the installed one, because an earlier run could not restart it.`
}

/**
 * Records, for later runs, which services were restored. If they cannot be recorded, returns the error, and the
 * services must be restored again.
 */
async function noteServices(
  { layout, of }: FailedRun,
  restorations: Omit<Restorations, 'of'>,
): Promise<DeployError | undefined> {
  try {
    await noteRestorations(layout, { of, ...restorations })
    return undefined
  } catch (error) {
    return toDeployError(error)
  }
}

/** False for a service that was not running before the plan. The rollback stops such a service. */
function wasDisturbed({ was_running: wasRunning }: Pick<ServiceChange, 'was_running'>): boolean {
  return wasRunning
}

function isObserved(service: ServiceChange | UnreachableService): boolean {
  return 'process' in service && service.process !== undefined
}

/**
 * Describes a service that the rollback left alone: a restart with files that are neither old nor new would do harm.
 */
function leftAlone(service: string): string {
  return `${service} was not restored, because the old files could not be restored.`
}

function describeUnreachable({ part }: UnreachableService): string {
  return inSentence(describePart(part))
}

function notRestored(service: UnreachableService): string {
  const deed = service.was_running ? 'restarted and not checked' : 'stopped'
  return `${describeUnreachable(service)} was not ${deed}, because ${service.why}.`
}

/** Begins a sentence. */
function inSentence(words: string): string {
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}`
}

const MAX_NAMED = 5

/** The files of the old version, once they are back. */
interface RestoredFiles {
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
interface Verification {
  /** Null if nothing was compared, or if some files are not known to be as they were installed. */
  readonly verified: boolean | null
  /** One sentence each. */
  readonly problems: readonly string[]
}

const NOT_COMPARED = 'The restored files could not be compared with their record: '
const NOT_VERIFIED: Verification = { verified: null, problems: [] }

/**
 * Compares the restored trees with their records. A recorded file of the old version counts as damaged if it is missing
 * or different. It does not count if that was already the case before the deployment, or if another process wrote the
 * file or is renaming it. A tree with only other differences counts as not verified, and so does one that cannot be
 * read, also not at the second attempt. Never throws.
 */
async function compareRestored(files: RestoredFiles): Promise<Verification> {
  try {
    return await comparePlaces(files).catch(() => comparePlaces(files))
  } catch (error) {
    return notCompared(files, error)
  }
}

async function comparePlaces(files: RestoredFiles): Promise<Verification> {
  const found = await Promise.all(files.places.map(place => comparePlace(place, files)))
  const restored = found.filter(verification => verification !== undefined)
  const isAll = restored.length > 0 && restored.every(({ verified }) => verified === true)
  const isDamaged = restored.some(({ verified }) => verified === false)
  return { verified: isDamaged ? false : isAll || null, problems: restored.flatMap(({ problems }) => problems) }
}

/** If the comparison only ran out of time, no damage is known. */
function notCompared({ grace }: RestoredFiles, error: unknown): Verification {
  if (grace.comparing.aborted) return NOT_VERIFIED
  const { message } = toHostError(error, 'reading them')
  return { problems: [`${NOT_COMPARED}${message}`], verified: null }
}

/** Returns undefined if there is nothing to compare and the place is empty. */
async function comparePlace(place: Place, files: RestoredFiles): Promise<Verification | undefined> {
  const { layout, log, grace, byContent, keepPaths: named } = files
  const root = installPath(layout, place)
  const note = readDriftNote(files.stagingFolder, place)
  const thoroughly = { byContent, signal: grace.comparing }
  const keepPaths = [...named, ...findStickyPaths(layout, place, { named })]
  const found = note && (await compareInstalled({ layout, log }, { ...place, keepPaths }, thoroughly))
  if (note === undefined || found === undefined) return pathExistsSync(root) ? NOT_VERIFIED : undefined
  const name = placePath(place)
  if (note.modified)
    log.notice(
      `The files of ${name} are not verified, because they differed from the installed version even before this deployment.`,
    )
  const recorded = findRecordedIn(layout, place)
  const before = { root, note, recorded, isAfterCrash: byContent }
  const { damaged: missed, written } = await findLater(before, found)
  const moving = await findMoving(before, missed, grace.comparing)
  const missing = missed.filter(path => !moving.has(path))
  const hidden = missing.filter(path => isHidden(join(root, path)))
  const damaged = missing.filter(path => !hidden.includes(path))
  const problems = [
    ...damaged.map(path => `${name}/${path} is not as it was before the deployment`),
    ...written.map(
      path => `${name}/${path} was written by another process after the deployment began, and was left as it is`,
    ),
    ...(moving.size === 0 ? [] : [describeMoving([...moving].map(path => `${name}/${path}`))]),
    ...(hidden.length === 0
      ? []
      : [
          `${HIDDEN}${listFirst(
            hidden.map(path => `${name}/${path}`),
            MAX_NAMED,
          )}`,
        ]),
  ]
  const isIntact = !note.modified && written.length + moving.size + hidden.length === 0
  return { verified: damaged.length > 0 ? false : isIntact || null, problems }
}

const MOVING = 'Another process renames files or directories back and forth, so these paths are missing at times: '

const HIDDEN = 'These restored files could not be read, so they were not compared with their record: '

/** Describes files of a restored tree that were missing only because another process was renaming them. */
export function describeMoving(paths: readonly string[]): string {
  return `${MOVING}${listFirst(paths, MAX_NAMED)}`
}

/**
 * True if a rollback's problem concerns files, in one of these places if it names any. Restoring services does not
 * solve such a problem.
 */
export function isOfFile(problem: string, places: readonly Place[]): boolean {
  const paths = places.map(place => `${placePath(place)}/`)
  if (problem.startsWith(NOT_COMPARED)) return true
  return paths.some(path => ['', MOVING, HIDDEN].some(words => problem.startsWith(`${words}${path}`)))
}

/**
 * The services that a run or a recovery restored, and those that it could not restore or did not reach, by the names
 * that state files have for them. The project-wide unit runs all parts of the deployment.
 */
interface Restorations {
  readonly of: Pick<DeploymentFacts, 'contract' | 'slug'>
  readonly restored?: readonly (string | null)[]
  /** A service occurs once for each change; the first says whether it ran before the deployment. */
  readonly unrestored?: readonly PendingService[]
}

/** Records in the rows of the parts which services are pending. The record is durable when this function returns. */
export async function noteRestorations(layout: Layout, restorations: Restorations): Promise<void> {
  try {
    await recordPending(layout, row => pendingAfter(row, restorations))
  } catch (error) {
    throw isSystemError(error)
      ? toHostError(error, `recording in ${layout.installed} which services were not restored`)
      : error
  }
}

/** Returns the row's services that are pending after these restorations. */
function pendingAfter(row: InstalledRow, { of, restored = [], unrestored = [] }: Restorations) {
  const runs = (part: string | null): boolean => isRunBy(row, part, of)
  const before = pendingIn(row)
  const added = unrestored.filter(({ part }) => runs(part))
  if (before === true && added.length === 0) return restored.some(runs) ? [] : true
  const failed = new Set(added.map(({ part }) => part))
  const isDone = (part: string | null): boolean => !failed.has(part) && restored.includes(part) && runs(part)
  const all = [...(before === true ? [] : before), ...added].filter(({ part }) => !isDone(part))
  const first = new Map(all.toReversed().map(({ part, was_running }) => [part, { part, was_running }]))
  return [...first.values()].reverse()
}

/** True if an earlier rollback or recovery left this service pending. */
export function isPending(layout: Layout, part: string | null, of: Restorations['of']): boolean {
  return readInstalled(layout).some(row => {
    const pending = pendingIn(row)
    return isRunBy(row, part, of) && (pending === true || pending.some(service => service.part === part))
  })
}

/**
 * True if the service of this name runs the row's part. The project-wide unit runs all parts of the deployment `of`.
 */
export function isRunBy(row: InstalledRow, part: string | null, { contract, slug }: Restorations['of']): boolean {
  if (part !== null) return row.id === part
  return slug !== null && isFrom(row, { contract, slug })
}
