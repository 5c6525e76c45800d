import type { HostConfig } from '../../core/plan/host-config.ts'
import { DEFAULT_HEALTHCHECK_SECONDS } from '../../core/plan/plan-step.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { placeOf, readInstalled } from '../host/installed.ts'
import { findMovablePaths } from '../host/keep-paths.ts'
import { installPath, placeName, settingsPath } from '../host/layout.ts'
import type { RestoredCheck } from '../services/healthchecks.ts'
import { describeService, projectServiceOf, type Service, serviceOf } from '../services/service.ts'
import { readServiceState } from '../services/supervise.ts'
import { moveToSnapshot } from './move-to-snapshot.ts'
import type { StepEnd } from './run-steps.ts'
import type { InstalledThing, StepContext } from './step-context.ts'

/**
 * Takes away what a new version does not bring: stops its service, where one runs and nothing that stays shares it, and
 * moves its tree to the snapshots. Where the tree is gone already, nothing is done. Throws DeploymentError `step_failed`
 * or `step_timed_out` when the service cannot be stopped, nobody can tell whether it runs, or a keep-path could not come back.
 */
export async function removeThing(context: StepContext, thing: InstalledThing): Promise<StepEnd> {
  const { layout, transaction, log } = context
  const { installed } = thing
  const place = installPath(layout, thing)
  if (!pathExistsSync(place)) {
    log.info(`${place} is gone already: it is only forgotten.`)
    return 'unchanged'
  }
  // What cannot come back is refused before anything is touched.
  findMovablePaths({ root: place, keepPaths: context.keepPaths })
  await stopService(context, thing)
  const snapshot = await moveToSnapshot({ layout, transaction }, thing, installed.version)
  context.replaced.set(placeName(thing), snapshot.name)
  log.notice(`${place} (${installed.version}) is taken away, because this version does not bring it.`)
  const settings = settingsPath(layout, thing)
  if (pathExistsSync(settings)) log.notice(`${settings} stays, because it is yours: remove it when nothing needs it.`)
  return 'done'
}

async function stopService(context: StepContext, thing: InstalledThing): Promise<void> {
  const { hostConfig, log, signal, transaction } = context
  const service = hostConfig && serviceOf(hostConfig, thing.id)
  if (hostConfig === undefined || service === undefined) {
    log.notice(
      `The host config names no supervisor, so nothing of ${placeName(thing)} was stopped: see whether it runs.`,
    )
    return
  }
  const { up, known, missing } = await readServiceState(service, { signal })
  if (missing || (known && !up)) return log.info(`${describeService(service)} does not run.`)
  if (isShared(context, hostConfig, service)) {
    log.notice(`${describeService(service)} of ${placeName(thing)} is not stopped: what stays is run by it as well.`)
    return
  }
  log.info(`stop ${describeService(service)}`)
  await transaction.noteHealthchecks([restoredCheck(hostConfig, service, thing)])
  await transaction.supervise(service, 'stop', signal)
}

/** Whether something that stays on this host, or the whole of it, is run by the service. */
function isShared(context: StepContext, config: HostConfig, service: Service): boolean {
  const leaving = new Set(context.oldThings.map(placeName))
  const rows = readInstalled(context.layout)
  const staying = rows.filter(row => !leaving.has(placeName(placeOf(row))))
  const ids = [...staying, ...context.things].map(({ id }) => id)
  const inUse = ids.flatMap(id => [serviceOf(config, id), projectServiceOf(config, id)])
  return inUse.some(other => other !== undefined && nameOf(other) === nameOf(service))
}

/** One for a service however it is spelt: systemd takes a name without a suffix for a service. */
function nameOf(service: Service): string {
  const { supervisor } = service
  const isShort =
    supervisor === 'systemd' && !/\.(service|socket|target|timer|path|mount|slice|scope)$/.test(service.unit)
  return JSON.stringify(isShort ? { ...service, unit: `${service.unit}.service` } : service)
}

/** The plan of the new version has no check of what it does not bring. */
function restoredCheck(config: HostConfig, service: Service, { id, installed }: InstalledThing): RestoredCheck {
  const check = config.plugins.get(id)?.healthcheck ?? null
  const timeout = DEFAULT_HEALTHCHECK_SECONDS + (check?.stableForSeconds ?? 0)
  return { id, service, check, timeout_seconds: timeout, retries: 0, previous_version: installed.version }
}
