import type { HostConfig } from '../core/plan/host-config.ts'
import type { PlanStep } from '../core/plan/plan-step.ts'
import type { Place } from '../install/host/layout.ts'
import { describeService, serviceOf } from '../install/services/service.ts'
import { findServiceOf } from '../install/services/supervise.ts'
import type { RunningRollback } from './deployment.ts'
import type { Target } from './target/target-part.ts'

const HEALTHCHECK_SECONDS = 60
/** The time that a check may need in addition to the seconds for which it must be stable. */
const SPARE_SECONDS = 30
const RETRIES = 1
/** The properties that all these steps share. The steps have no real position, because they are in no file. */
const STEP = { dependsOn: [], snapshot: true, file: '', line: 1, column: 1 } as const

/**
 * Builds the steps of a rollback without a plan. The steps restore all parts. If the host config has a supervisor, they
 * then restart and check each part's service. Otherwise, they run the health checks that the host config has for the
 * parts.
 *
 * `findServiceOf` finds the service of a part. If it finds none, no service is restarted, and a warning says so.
 */
export async function buildDefaultSteps(
  rollback: RunningRollback,
  { parts }: Pick<Target, 'parts'>,
  hostConfig: HostConfig | undefined,
): Promise<PlanStep[]> {
  const restores = parts.map(restoreStep)
  if (hostConfig === undefined) return restores
  const known: Known[] = []
  for (const { id } of parts) known.push(await findKnown(rollback, hostConfig, id))
  const restarts = known.filter(({ service }) => service !== 'none').map(restartStep)
  const checks = known.filter(({ service, seconds }) => service !== 'none' || seconds !== undefined).map(checkStep)
  return [...restores, ...uniqueById(restarts), ...uniqueById(checks)]
}

/** The service and the health check of an id, according to the host config. */
interface Known {
  readonly id: string
  readonly service: 'own' | 'project' | 'none'
  /** The seconds for which the health check must be stable; undefined without a health check. */
  readonly seconds: number | undefined
}

async function findKnown({ tools }: RunningRollback, hostConfig: HostConfig, id: string): Promise<Known> {
  const known = { id, seconds: hostConfig.plugins.get(id)?.healthcheck?.stableForSeconds }
  const usual = serviceOf(hostConfig, id)
  if (usual === undefined) return { ...known, service: 'none' }
  const found = await findServiceOf(hostConfig, id, { signal: tools.signal })
  if (found !== undefined) return { ...known, service: found.part === null ? 'project' : 'own' }
  tools.log.warning(
    `The ${describeService(usual)} is not running, and the host config has no entry for ${id}, so no service is restarted for ${id}. If another service runs ${id}, restart that service, or add plugins.${id} to the host config.`,
  )
  return { ...known, service: 'none' }
}

function restoreStep({ shelf, id }: Place): PlanStep {
  const step = { ...STEP, id: `restore-${id}` }
  return shelf === 'plugins'
    ? { ...step, action: 'install_plugin', plugin: id }
    : { ...step, action: 'install_extension', extension: id }
}

function restartStep({ id, service }: Known): PlanStep {
  if (service === 'project') return { ...STEP, id: 'restart', action: 'restart' }
  return { ...STEP, id: `restart-${id}`, action: 'restart', plugin: id }
}

function checkStep({ id, service, seconds = 0 }: Known): PlanStep {
  const timeoutSeconds = Math.max(HEALTHCHECK_SECONDS, seconds + SPARE_SECONDS)
  const step = { ...STEP, action: 'healthcheck', timeoutSeconds, retries: RETRIES } as const
  return service === 'project' ? { ...step, id: 'health' } : { ...step, id: `health-${id}`, plugin: id }
}

function uniqueById(steps: readonly PlanStep[]): PlanStep[] {
  return [...new Map(steps.map(step => [step.id, step])).values()]
}
