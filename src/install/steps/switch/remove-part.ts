import type { HostConfig } from '../../../core/plan/host-config.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { readInstalled } from '../../host/installed/host-record.ts'
import { placeOf } from '../../host/installed/row-place.ts'
import type { RemovedRow } from '../../host/installed/rows.ts'
import { findMovablePaths } from '../../host/keep-paths.ts'
import { installPath, placeName, placePath, settingsPath } from '../../host/layout.ts'
import { requireSwitchable } from '../../host/switchable.ts'
import { checkOfRestored } from '../../services/healthchecks.ts'
import { describeService, projectServiceOf, type Service, serviceOf } from '../../services/service.ts'
import { readServiceState } from '../../services/supervise.ts'
import type { Deployment } from '../../transaction/context.ts'
import type { InstalledPart } from '../parts/part.ts'
import type { StepContext } from '../step-context.ts'
import type { StepResult } from '../step-entry.ts'
import { announceModified, nextSnapshot } from './next-snapshot.ts'
import type { PlannedSwitch } from './planned-switch.ts'
import { identifyReplaced } from './replaced-tree.ts'

/**
 * Stops the service of a part that the new version does not contain, if the service runs and no remaining part shares
 * it. Returns whether the part's tree exists; does nothing if the tree is gone. Throws as `findMovablePaths` and
 * `requireSwitchable` do. Also throws DeploymentError `step_failed` or `step_timed_out` if the service cannot be
 * stopped or its state is unknown, and the signal's reason.
 */
export async function stopRemoved(context: StepContext, part: InstalledPart): Promise<boolean> {
  const { layout, keepPaths } = context.deployment
  const path = installPath(layout, part)
  if (!pathExistsSync(path)) return false
  // Refuse kept paths that could not be restored, before anything is touched.
  findMovablePaths({ root: path, keepPaths })
  requireSwitchable(context.deployment, part)
  await stopService(context, part)
  return true
}

/** Plans how a part's tree leaves its place. Throws as `nextSnapshot` does. */
export async function planRemoval(context: StepContext, part: InstalledPart): Promise<PlannedSwitch> {
  const { deployment, results } = context
  const { version } = part.installed
  const snapshot = await nextSnapshot(deployment, part, version)
  return {
    part,
    snapshot,
    kept: async () => [],
    into: () => [],
    async finish() {
      const modified = await identifyReplaced(context, part, snapshot.path)
      results.set(placeName(part), { snapshot: snapshot.name, modified })
      await announceModified(deployment, part, snapshot)
      const did = version === null ? 'removed' : `${version} removed`
      return { status: 'done', did, story: `${placePath(part)} ${did}` }
    },
  }
}

/** Builds the result for a part whose tree another process has removed. */
export function goneAlready(part: InstalledPart): StepResult {
  return { status: 'unchanged', did: 'was gone already', story: `${placePath(part)} was gone already` }
}

/** Announces the removed parts once they are committed: before that, a rollback would restore them. */
export function announceRemoved({ layout, tools, record }: Deployment, removed: readonly RemovedRow[]): void {
  const done = new Set(
    record.steps.flatMap(({ id, action, status }) => (action === 'remove' && status === 'done' ? [id] : [])),
  )
  for (const row of removed) {
    const place = placeOf(row)
    if (!done.has(placeName(place))) continue
    const version = row.snapshots.at(-1)?.version ?? 'of an unknown version'
    const path = installPath(layout, place)
    tools.log.notice(`${path} (${version}) was removed, because this version of the project does not contain it.`)
    const settings = settingsPath(layout, place)
    if (pathExistsSync(settings)) tools.log.notice(`${settings} is yours and stays: remove it when nothing needs it.`)
  }
}

async function stopService(context: StepContext, part: InstalledPart): Promise<void> {
  const { hostConfig } = context.order
  const { log, signal } = context.deployment.tools
  const service = hostConfig && serviceOf(hostConfig, part.id)
  if (hostConfig === undefined || service === undefined) {
    log.notice(`No supervisor is configured, so ${placeName(part)} was not stopped: check whether it is running.`)
    return
  }
  const { up, known, missing } = await readServiceState(service, { signal })
  if (missing || (known && !up)) return log.info(`${describeService(service)} is not running.`)
  if (isShared(context, hostConfig, service)) {
    log.notice(
      `${describeService(service)} of ${placeName(part)} was not stopped, because a remaining part uses the same service.`,
    )
    return
  }
  log.info(`stop ${describeService(service)}`)
  // The plan of the new version has no check for a removed part.
  context.transaction.noteHealthchecks([checkOfRestored(hostConfig, part.installed, service)])
  await context.transaction.supervise({ service, part: part.id }, 'stop', signal)
}

/** True if the service runs a part that stays on this host, or the whole project. */
function isShared({ deployment, order }: StepContext, config: HostConfig, service: Service): boolean {
  const leaving = new Set(order.removals.map(placeName))
  const rows = readInstalled(deployment.layout)
  const staying = rows.filter(row => !leaving.has(placeName(placeOf(row))))
  const ids = [...staying, ...order.parts].map(({ id }) => id)
  const inUse = ids.flatMap(id => [serviceOf(config, id), projectServiceOf(config, id)])
  return inUse.some(other => other !== undefined && keyOf(other) === keyOf(service))
}

/** Returns the same key for every spelling of a service: systemd adds `.service` to a name without a suffix. */
function keyOf(service: Service): string {
  const { supervisor } = service
  const isShort =
    supervisor === 'systemd' && !/\.(service|socket|target|timer|path|mount|slice|scope)$/.test(service.unit)
  return JSON.stringify(isShort ? { ...service, unit: `${service.unit}.service` } : service)
}
