import { type DeployError, toDeployError } from '../../core/errors.ts'
import { pathExistsSync } from '../files/trees/tree-walk.ts'
import { findInstalled, readInstalled } from '../host/installed/host-record.ts'
import { installPath, type Layout, type Place, placePath } from '../host/layout.ts'
import { findUnhealthy } from '../services/check-health.ts'
import { isExamining, type RestoredCheck } from '../services/healthchecks.ts'
import { describePart, describeService } from '../services/service.ts'
import { restoreServices, type ServiceChange, type ServiceStarts } from '../services/service-changes.ts'
import type { RollbackFacts } from './end.ts'
import { noteRestorations, type Restorations } from './pending-services.ts'
import { isInstalledIn, type RestoredFiles, verifyRestored } from './restored-files.ts'

export interface RollbackRequest extends RestoredFiles {
  /** The contract and the slug of the deployment, whose parts its project-wide unit runs. */
  of: Restorations['of']
  services: readonly ServiceChange[]
  /** The services that the deployment acted on, and that this run cannot restore. */
  unreachable?: readonly UnreachableService[]
  /** Returns the checks of the old version; called once the services are restored. */
  healthchecks(): Promise<readonly RestoredCheck[]>
  /** Undoes the changes to files; resolves to whether any of them had been made. */
  undo(): Promise<boolean>
  /** The host's files that the undo could not put back, one sentence each; complete once `undo` has ended. */
  lost?: readonly string[] | undefined
  /** Called once all changes to files are undone, before any service is restored. */
  onFilesRestored?: FilesRestored | undefined
}

/**
 * `isVerified` is false if restored files do not match their record. Resolves to a value that says when the services
 * start.
 */
export type FilesRestored = (isVerified: boolean, services: readonly ServiceChange[]) => Promise<ServiceStarts>

/** A service that a state file names, but for which the host config of this run has no service. */
export interface UnreachableService {
  readonly part: string | null
  readonly was_running: boolean
  /** Completes the sentence that begins with what was not done. */
  readonly why: string
}

export interface RolledBack {
  outcome: 'failed' | 'rolled_back' | 'inconsistent'
  /** Null when nothing had been changed. */
  rollback: RollbackFacts | null
  /**
   * A cancelled run had no time to restore all services, or a run could not record which services it restored: another
   * run has to restore them.
   */
  isUnfinished?: true
  /** Why the run could not record which services it restored. */
  unwritten?: DeployError
  /** The checks of the old version that a cancelled run had no time for. */
  unchecked?: readonly RestoredCheck[]
}

/**
 * Rolls a deployment back. Restores the files, and then the previous state of the services, so the services use the old
 * files. Compares the restored trees with their records, and runs the plan's health checks on the old version. After a
 * cancel, does no more than the grace allows. Problems of the rollback are not thrown: the result contains them.
 */
export async function rollBack(request: RollbackRequest): Promise<RolledBack> {
  const { services, unreachable = [] } = request
  const known = [...services, ...unreachable]
  let wasChanged: boolean
  try {
    wasChanged = await request.undo()
  } catch (error) {
    await noteServices(request, { unrestored: known.map(({ part }) => part) })
    const left = [...services.map(({ service }) => describeService(service)), ...unreachable.map(describeUnreachable)]
    const problems = [toDeployError(error).message, ...lostIn(request), ...left.map(leftAlone)]
    return { outcome: 'inconsistent', rollback: { restored: false, problems, verified: null, healthy: null } }
  }
  if (!wasChanged && known.length === 0) return { outcome: 'failed', rollback: null }
  for (const place of request.places) logRestored(request, place)
  const { problems: differences, verified } = await verifyRestored(request)
  const starts = (await request.onFilesRestored?.(verified !== false, services)) ?? 'now'
  const { healthy, problems, ...left } = await restoreAndCheckServices(request, starts)
  return {
    outcome: verified === false ? 'inconsistent' : wasChanged || known.some(wasDisturbed) ? 'rolled_back' : 'failed',
    rollback: { restored: true, problems: [...lostIn(request), ...differences, ...problems], verified, healthy },
    ...left,
  }
}

function lostIn({ lost = [] }: RollbackRequest): readonly string[] {
  return lost
}

/** Logs which version was restored at a place. Logs nothing for a directory to which a version was about to move. */
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
  const { services, unreachable = [], log, grace } = request
  const limits = { log, signal: grace.restoring, starts }
  const { isRunning, isFinished, ...done } = await restoreServices(services, limits)
  const unrestored = [...done.unrestored, ...unreachable.map(({ part }) => part)]
  const unwritten = await noteServices(request, { restored: services.map(({ part }) => part), unrestored })
  const problems = [...done.problems, ...unreachable.map(notRestored)]
  if (unwritten !== undefined)
    return { healthy: null, problems: [...problems, unwritten.message], isUnfinished: true, unwritten }
  if (!isFinished) return { healthy: null, problems, isUnfinished: true }
  if (done.problems.length > 0) return { healthy: false, problems }
  if (starts === 'queued') {
    log.info('Services start only once the unit of this recovery has started, so their health is not checked here.')
    return { healthy: null, problems }
  }
  if (!isRunning && services.length > 0) return { healthy: null, problems }
  const all = await request.healthchecks()
  const checks = all.filter(check => check.previous_version !== null && isExamining(check))
  if (checks.length === 0) return { healthy: null, problems }
  try {
    const findings = await findUnhealthy(checks, { log, signal: grace.cancelled })
    const healthy = findings.length > 0 ? false : unreachable.length > 0 ? null : true
    return { healthy, problems: [...problems, ...findings] }
  } catch {
    return { healthy: null, problems, unchecked: checks }
  }
}

/**
 * Records, for later runs, which services were restored. If they cannot be recorded, returns the error, and the
 * services must be restored again.
 */
async function noteServices(
  { layout, of }: RollbackRequest,
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
