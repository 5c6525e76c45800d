import { type DeployError, toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import type { Grace } from '../files/grace.ts'
import { pathExistsSync } from '../files/trees/tree-walk.ts'
import { findInstalled, readInstalled } from '../host/installed/host-record.ts'
import { placeOf } from '../host/installed/row-place.ts'
import { installPath, isSamePlace, type Layout, type Place, placePath } from '../host/layout.ts'
import { compareInstalled, findRecordedIn } from '../host/trees/drift.ts'
import { findLater, readDriftNote } from '../host/trees/drift-note.ts'
import { findUnhealthy } from '../services/check-health.ts'
import { isExamining, type RestoredCheck } from '../services/healthchecks.ts'
import { describeService } from '../services/service.ts'
import { restoreServices, type ServiceChange, type ServiceStarts } from '../services/service-changes.ts'
import type { RollbackFacts } from './end.ts'
import { noteRestorations, type Restorations } from './unrestored.ts'

export interface RollbackRequest {
  layout: Layout
  log: Log
  /** The time that a cancel leaves for each part of the rollback. */
  grace: Grace
  /** The places that a tree was moved out of or into, or was about to be. */
  places: readonly Place[]
  keepPaths: readonly string[]
  /** The deployment's staging folder; it contains the note of how the old version's files had been changed before. */
  stagingFolder: string
  /** Whether to read all restored files: after a crash, their times prove nothing. */
  byContent: boolean
  services: readonly ServiceChange[]
  healthchecks: readonly RestoredCheck[]
  /** Undoes the changes of files; resolves to whether there were any. */
  undo(): Promise<boolean>
  /** The host's files that the undo could not put back, one sentence each; complete once `undo` has resolved. */
  lost?: readonly string[] | undefined
  /** Called once the files are as they were, before any service is restored; see `FilesRestored`. */
  onFilesRestored?: FilesRestored | undefined
}

/** Takes false if restored files do not match their record. Resolves to how the services start. */
export type FilesRestored = (isVerified: boolean, services: readonly ServiceChange[]) => Promise<ServiceStarts>

export interface RolledBack {
  outcome: 'failed' | 'rolled_back' | 'inconsistent'
  /** Null when nothing had been changed. */
  rollback: RollbackFacts | null
  /**
   * A cancelled run had no time to restore all services, or a run could not record which it restored: another has to.
   */
  isUnfinished?: true
  /** Why the run could not record which services it restored. */
  unwritten?: DeployError
  /** The checks of the old version that a cancelled run had no time for. */
  unchecked?: readonly RestoredCheck[]
}

/**
 * Rolls a deployment back: first the files, then the services as they were, which then run the old files. Compares the
 * restored tree with its record, and runs the plan's health checks on the old version. After a cancel, it does no more
 * than the grace allows. Never throws: problems are in the result.
 */
export async function rollBack(request: RollbackRequest): Promise<RolledBack> {
  let wasChanged: boolean
  try {
    wasChanged = await request.undo()
  } catch (error) {
    await noteServices(request, { unrestored: request.services.map(({ service }) => service) })
    const problems = [toDeployError(error).message, ...lostIn(request), ...request.services.map(leftAlone)]
    return { outcome: 'inconsistent', rollback: { restored: false, problems, verified: null, healthy: null } }
  }
  if (!wasChanged && request.services.length === 0) return { outcome: 'failed', rollback: null }
  for (const place of request.places) logRestored(request, place)
  const { problems: differences, verified } = await verifyRestored(request).catch(error => notVerified(request, error))
  const starts = (await request.onFilesRestored?.(verified !== false, request.services)) ?? 'now'
  const { healthy, problems, ...left } = await restoreAndCheckServices(request, starts)
  return {
    outcome:
      verified === false
        ? 'inconsistent'
        : wasChanged || request.services.some(wasDisturbed)
          ? 'rolled_back'
          : 'failed',
    rollback: { restored: true, problems: [...lostIn(request), ...differences, ...problems], verified, healthy },
    ...left,
  }
}

function lostIn({ lost = [] }: RollbackRequest): readonly string[] {
  return lost
}

/** Logs the version that is in a place again; nothing for a directory to which a version was going to move. */
function logRestored({ layout, log }: RollbackRequest, place: Place): void {
  const isThere = pathExistsSync(installPath(layout, place))
  if (isThere && !isInstalledIn(layout, place)) return
  const version = isThere ? versionIn(layout, place) : undefined
  log.did(`${placePath(place)} is ${describeRestored(isThere, version)}`)
}

function describeRestored(isThere: boolean, version: string | undefined): string {
  if (!isThere) return 'not installed, as before'
  return version === undefined ? 'restored' : `${version} again`
}

function versionIn(layout: Layout, place: Place): string | undefined {
  try {
    return findInstalled(readInstalled(layout), place)?.version ?? undefined
  } catch {
    return undefined
  }
}

type CheckedServices = Pick<RollbackFacts, 'healthy' | 'problems'> & Omit<RolledBack, 'outcome' | 'rollback'>

async function restoreAndCheckServices(request: RollbackRequest, starts: ServiceStarts): Promise<CheckedServices> {
  const { services, log, grace } = request
  const limits = { log, signal: grace.restoring, starts }
  const { isRunning, problems, unrestored, isFinished } = await restoreServices(services, limits)
  const restored = services.map(({ service }) => service)
  const unwritten = await noteServices(request, { restored, unrestored })
  if (unwritten !== undefined)
    return { healthy: null, problems: [...problems, unwritten.message], isUnfinished: true, unwritten }
  if (!isFinished) return { healthy: null, problems, isUnfinished: true }
  if (problems.length > 0) return { healthy: false, problems }
  if (starts === 'queued') {
    log.info('Services start when the unit of this recovery has started, so their health is not checked here.')
    return { healthy: null, problems }
  }
  const checks = request.healthchecks.filter(check => check.previous_version !== null && isExamining(check))
  const isExpectedToRun = isRunning || services.length === 0
  if (!isExpectedToRun || checks.length === 0) return { healthy: null, problems }
  try {
    const findings = await findUnhealthy(checks, { log, signal: grace.cancelled })
    return { healthy: findings.length === 0, problems: findings }
  } catch {
    return { healthy: null, problems, unchecked: checks }
  }
}

/**
 * Records for later runs which services were restored. Returns the error if it cannot: then they must be restored
 * again.
 */
async function noteServices({ layout }: RollbackRequest, restorations: Restorations): Promise<DeployError | undefined> {
  try {
    await noteRestorations(layout, restorations)
    return undefined
  } catch (error) {
    return toDeployError(error)
  }
}

/** False for a service that the plan only started: it did not run before, and is stopped again. */
function wasDisturbed({ action, was_running: wasRunning }: ServiceChange): boolean {
  return wasRunning || action !== 'start'
}

/** With files that are neither old nor new, a restart would do more harm. */
function leftAlone({ action, service }: ServiceChange): string {
  return `${describeService(service)} was not restored after the plan's ${action}, because the old files are not back.`
}

/** The comparison of the restored trees with their records. */
interface Verification {
  /** Null if nothing was compared, or if some files are not known to be as they were installed. */
  readonly verified: boolean | null
  /** One sentence each. */
  readonly problems: readonly string[]
}

const UNKNOWN: Verification = { verified: null, problems: [] }

/**
 * Compares the restored trees with their records. Recorded files of the old version are damaged if they are missing or
 * different, became so after the deployment began, and no process wrote them; a tree with other differences is only not
 * verified.
 */
async function verifyRestored(request: RollbackRequest): Promise<Verification> {
  const found = await Promise.all(request.places.map(place => verifyPlace(place, request)))
  const restored = found.filter(verification => verification !== undefined)
  const isAll = restored.length > 0 && restored.every(({ verified }) => verified === true)
  const isDamaged = restored.some(({ verified }) => verified === false)
  return { verified: isDamaged ? false : isAll || null, problems: restored.flatMap(({ problems }) => problems) }
}

/** If only the time for it ran out, nothing is known to be damaged. */
function notVerified({ grace }: RollbackRequest, error: unknown): Verification {
  if (grace.comparing.aborted) return UNKNOWN
  const { message } = toDeployError(error)
  return { problems: [`The restored files could not be compared with their record: ${message}`], verified: false }
}

/** Returns undefined if nothing is in the place. */
async function verifyPlace(place: Place, request: RollbackRequest): Promise<Verification | undefined> {
  const { layout, log, grace, keepPaths, byContent } = request
  const root = installPath(layout, place)
  const note = isInstalledIn(layout, place) ? readDriftNote(request.stagingFolder, place) : undefined
  const thoroughly = { byContent, signal: grace.comparing }
  const found = note && (await compareInstalled({ layout, log }, { ...place, keepPaths }, thoroughly))
  if (note === undefined || found === undefined) return pathExistsSync(root) ? UNKNOWN : undefined
  const name = placePath(place)
  if (note.modified) log.notice(`The files of ${name} are not verified: some had been changed before this deployment.`)
  const recorded = findRecordedIn(layout, place)
  const { damaged, written } = await findLater({ root, note, recorded, isAfterCrash: byContent }, found)
  const problems = [
    ...damaged.map(path => `${name}/${path} is not as it was before the deployment`),
    ...written.map(
      path => `${name}/${path} was written by another process during the deployment, and was left as it is`,
    ),
  ]
  const isIntact = !note.modified && written.length === 0
  return { verified: damaged.length > 0 ? false : isIntact || null, problems }
}

/** False for a directory to which a version was going to move. */
function isInstalledIn(layout: Layout, place: Place): boolean {
  try {
    const row = findInstalled(readInstalled(layout), place)
    return row === undefined || isSamePlace(placeOf(row), place)
  } catch {
    // The comparison says what is wrong with that record.
    return true
  }
}
