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
  /** Out of which or into which a tree was moved, or was about to be. */
  places: readonly Place[]
  keepPaths: readonly string[]
  /** The earliest time of a change: what differed before is the host's own doing. */
  since: Date
  services: readonly ServiceChange[]
  healthchecks: readonly RestoredCheck[]
  /** Undoes the changes of files; resolves to whether there were any. */
  undo(): Promise<boolean>
}

export interface RolledBack {
  outcome: 'failed' | 'rolled_back' | 'inconsistent'
  /** Null when nothing had been changed. */
  rollback: RollbackFacts | null
}

/**
 * Rolls a deployment back: first the files, then the services as they were, which then run the old files. Compares the
 * restored tree with its record, and runs the plan's health checks on the old version. Never throws: what is wrong is
 * in the result.
 */
export async function rollBack(request: RollbackRequest): Promise<RolledBack> {
  let wasChanged: boolean
  try {
    wasChanged = await request.undo()
  } catch (error) {
    const problems = [toDeployError(error).message, ...request.services.map(leftAlone)]
    return { outcome: 'inconsistent', rollback: { restored: false, problems, verified: null, healthy: null } }
  }
  if (!wasChanged && request.services.length === 0) return { outcome: 'failed', rollback: null }
  const damage = await findDamage(request).catch(error => [
    `The restored files could not be compared with their record: ${toDeployError(error).message}`,
  ])
  const verified = damage === undefined ? null : damage.length === 0
  const { healthy, problems } = await restoreAndCheckServices(request)
  return {
    outcome: verified === false ? 'inconsistent' : 'rolled_back',
    rollback: { restored: true, problems: [...(damage ?? []), ...problems], verified, healthy },
  }
}

/** The steps have not run before this time, so nothing was changed before it. */
export function firstChangeOf({ states, facts }: DeploymentRecord): Date {
  return new Date(states.find(({ state }) => state === 'installing')?.at ?? facts.started_at)
}

async function restoreAndCheckServices(
  request: RollbackRequest,
): Promise<{ healthy: boolean | null; problems: string[] }> {
  const { services, log } = request
  const { isRunning, problems } = await restoreServices(services, log)
  if (problems.length > 0) return { healthy: false, problems }
  const checks = request.healthchecks.filter(check => check.previous_version !== null)
  const isExpectedToRun = isRunning || services.length === 0
  if (!isExpectedToRun || checks.length === 0) return { healthy: null, problems }
  const findings = await findUnhealthy(checks, log)
  return { healthy: findings.length === 0, problems: findings }
}

/** With files that are neither old nor new, a restart would make things worse. */
function leftAlone({ action, service }: ServiceChange): string {
  return `${describeService(service)} was not restored after the plan's ${action}, because the old files are not back.`
}

/**
 * The recorded files of the old version that are missing or different, and became so since the first change; earlier
 * differences are the host's own and only logged. Undefined when there is no record to compare with.
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
  const different = [...missing, ...changed]
  const restored = { root, since, moved: foldersOfKept(root, keepPaths) }
  const damage = different.filter(path => hasChanged(restored, path))
  const drift = different.length - damage.length
  if (drift > 0)
    log.notice(`${drift} files of the restored version had been changed on this host before this deployment.`)
  return damage.map(path => `${place.shelf}/${place.id}/${path} is not as it was installed`)
}

/** The folders, relative to the root, that change when kept paths move in and out of them. */
function foldersOfKept(root: string, keepPaths: readonly string[]): Set<string> {
  return new Set(keepPaths.filter(path => pathExistsSync(join(root, path))).map(path => dirname(path)))
}

interface RestoredTree {
  readonly root: string
  readonly since: Date
  readonly moved: ReadonlySet<string>
}

/**
 * Whether a path has changed since the first change of the deployment. A rename does not touch the change time of what
 * is inside a directory; a write, chmod or removal does. Where kept paths moved in a folder, its own time says nothing,
 * and what is missing counts as missing before.
 */
function hasChanged({ root, since, moved }: RestoredTree, path: string): boolean {
  const stat = lstatIfPresentSync(join(root, path))
  if (stat !== undefined) return stat.ctimeMs >= since.getTime()
  let folder = dirname(path)
  while (folder !== '.' && !pathExistsSync(join(root, folder))) folder = dirname(folder)
  const found = lstatIfPresentSync(join(root, folder))
  return found === undefined || (!moved.has(folder) && found.mtimeMs >= since.getTime())
}
