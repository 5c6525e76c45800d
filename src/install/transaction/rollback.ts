import { type DeployError, toDeployError } from '../../core/errors.ts'
import { pathExistsSync } from '../files/trees/tree-walk.ts'
import { findInstalled, readInstalled } from '../host/installed/host-record.ts'
import { installPath, type Layout, type Place, placePath } from '../host/layout.ts'
import { findUnhealthy } from '../services/check-health.ts'
import { isExamining, type RestoredCheck } from '../services/healthchecks.ts'
import { describeService } from '../services/service.ts'
import { restoreServices, type ServiceChange, type ServiceStarts } from '../services/service-changes.ts'
import type { RollbackFacts } from './end.ts'
import { isInstalledIn, type RestoredFiles, verifyRestored } from './restored-files.ts'
import { noteRestorations, type Restorations } from './unrestored.ts'

export interface RollbackRequest extends RestoredFiles {
  services: readonly ServiceChange[]
  healthchecks: readonly RestoredCheck[]
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
  const { problems: differences, verified } = await verifyRestored(request)
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
    log.info('Services start only once the unit of this recovery has started, so their health is not checked here.')
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
 * Records, for later runs, which services were restored. If they cannot be recorded, returns the error, and the
 * services must be restored again.
 */
async function noteServices({ layout }: RollbackRequest, restorations: Restorations): Promise<DeployError | undefined> {
  try {
    await noteRestorations(layout, restorations)
    return undefined
  } catch (error) {
    return toDeployError(error)
  }
}

/** False for a service that was not running before the plan started it. The rollback stops such a service. */
function wasDisturbed({ action, was_running: wasRunning }: ServiceChange): boolean {
  return wasRunning || action !== 'start'
}

/**
 * Describes a service that the rollback left alone: a restart with files that are neither old nor new would do harm.
 */
function leftAlone({ action, service }: ServiceChange): string {
  return `${describeService(service)} was not restored after the plan's ${action}, because the old files could not be restored.`
}
