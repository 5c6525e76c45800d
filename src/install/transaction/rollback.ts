import { dirname, join } from 'node:path'
import { toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { lstatIfPresentSync, pathExistsSync } from '../files/tree-walk.ts'
import { findInstalled, readInstalled } from '../host/installed.ts'
import { installPath, type Layout, type Place } from '../host/layout.ts'
import { compareTree, readTreeRecord } from '../host/tree-record.ts'
import { findUnhealthy } from '../services/check-health.ts'
import type { RestoredCheck } from '../services/healthchecks.ts'
import { describeService } from '../services/service.ts'
import { restoreServices, type ServiceChange } from '../services/service-changes.ts'
import type { RollbackFacts } from './end.ts'
import type { DeploymentRecord } from './record.ts'

export interface RollbackRequest {
  layout: Layout
  log: Log
  /** What a tree was moved out of or into, or was about to be. */
  places: readonly Place[]
  keepPaths: readonly string[]
  /** When changes can have begun: what differed before is the host's own doing. */
  since: Date
  services: readonly ServiceChange[]
  healthchecks: readonly RestoredCheck[]
  /** Takes the changes of files back; resolves to whether there were any. */
  undo(): Promise<boolean>
}

export interface TakenBack {
  outcome: 'failed' | 'rolled_back' | 'inconsistent'
  /** Null when nothing had been changed. */
  rollback: RollbackFacts | null
}

/**
 * Takes a deployment back: files first, then the services as they were, on the old files. Checks the restored tree against
 * its record, and by the plan's health checks that the old version runs again. Never throws: what is off is told.
 */
export async function takeBack(request: RollbackRequest): Promise<TakenBack> {
  let wasChanged: boolean
  try {
    wasChanged = await request.undo()
  } catch (error) {
    const problems = [toDeployError(error).message, ...request.services.map(leftAlone)]
    return { outcome: 'inconsistent', rollback: { restored: false, problems, verified: null, healthy: null } }
  }
  if (!wasChanged && request.services.length === 0) return { outcome: 'failed', rollback: null }
  const damage = await findDamage(request).catch(error => [
    `The restored tree could not be checked: ${toDeployError(error).message}`,
  ])
  const verified = damage === undefined ? null : damage.length === 0
  const { healthy, problems } = await bringServicesBack(request)
  return {
    outcome: verified === false ? 'inconsistent' : 'rolled_back',
    rollback: { restored: true, problems: [...(damage ?? []), ...problems], verified, healthy },
  }
}

/** No change is made before the steps run. */
export function firstChangeOf({ states, facts }: DeploymentRecord): Date {
  return new Date(states.find(({ state }) => state === 'installing')?.at ?? facts.started_at)
}

async function bringServicesBack(request: RollbackRequest): Promise<{ healthy: boolean | null; problems: string[] }> {
  const { services, log } = request
  const { isRunning, problems } = await restoreServices(services, log)
  if (problems.length > 0) return { healthy: false, problems }
  const checks = request.healthchecks.filter(check => check.previous_version !== null)
  const isExpectedToRun = isRunning || services.length === 0
  if (!isExpectedToRun || checks.length === 0) return { healthy: null, problems }
  const findings = await findUnhealthy(checks, log)
  return { healthy: findings.length === 0, problems: findings }
}

/** On files that are neither old nor new a restart would make things worse. */
function leftAlone({ action, service }: ServiceChange): string {
  return `After the ${action} that the plan asked for, ${describeService(service)} was left alone, because the old files are not back.`
}

/**
 * What of the recorded old version is missing or other than recorded, and became so since the first change; what
 * was so before is the host's own doing and only told. Undefined when there is no record to compare with.
 */
async function findDamage(request: RollbackRequest): Promise<string[] | undefined> {
  const found = await Promise.all(request.places.map(place => findDamageIn(place, request)))
  const compared = found.filter(damage => damage !== undefined)
  return compared.length === 0 ? undefined : compared.flat()
}

async function findDamageIn(
  place: Place,
  { layout, log, keepPaths, since }: RollbackRequest,
): Promise<string[] | undefined> {
  const digest = findInstalled(readInstalled(layout), place)?.tree_digest
  const record = digest ? readTreeRecord(layout, digest) : undefined
  if (record === undefined) return undefined
  const root = installPath(layout, place)
  const { missing, changed } = await compareTree({ root, keepPaths }, record)
  const moved = foldersOfKept(root, keepPaths)
  const damage = [...missing, ...changed].filter(path => hasChangedSince(root, path, since, moved))
  const drift = missing.length + changed.length - damage.length
  if (drift > 0)
    log.notice(`${drift} files of the restored version had been changed on this host before this deployment.`)
  return damage.map(path => `${place.shelf}/${place.id}/${path} is not as it was installed`)
}

/** The folders, relative to the root, that carrying the kept paths over has changed itself. */
function foldersOfKept(root: string, keepPaths: readonly string[]): Set<string> {
  return new Set(keepPaths.filter(path => pathExistsSync(join(root, path))).map(path => dirname(path)))
}

/**
 * A rename leaves the change time of what is inside a directory alone; a write, chmod or removal does not. Where a
 * folder's own time says nothing because kept paths were moved in it, what is missing counts as missing before.
 */
function hasChangedSince(root: string, path: string, start: Date, moved: ReadonlySet<string>): boolean {
  const stat = lstatIfPresentSync(join(root, path))
  if (stat !== undefined) return stat.ctimeMs >= start.getTime()
  let folder = dirname(path)
  while (folder !== '.' && !pathExistsSync(join(root, folder))) folder = dirname(folder)
  const found = lstatIfPresentSync(join(root, folder))
  return found === undefined || (!moved.has(folder) && found.mtimeMs >= start.getTime())
}
