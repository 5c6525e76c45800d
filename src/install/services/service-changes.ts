import { setTimeout } from 'node:timers/promises'
import { z } from 'zod/mini'
import { DeploymentError, toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import type { ServiceAction } from './commands.ts'
import { describeService, type Service, serviceSchema } from './service.ts'
import { forgetStarts, readServiceState, superviseService } from './supervise.ts'

/** kubectl refuses to restart a deployment that was restarted within the same second. */
const SECOND_RESTART_AFTER_MS = 1500

/** That a plan has a service started, stopped or restarted, and how it was before; as written to the journal. */
export const serviceChangeSchema = z.lazy(() =>
  z.object({
    service: serviceSchema,
    action: z.enum(['start', 'stop', 'restart']),
    was_running: z.boolean(),
    /** Of a Kubernetes deployment; null elsewhere. */
    replicas: z.nullable(z.int().check(z.nonnegative())),
  }),
)
export type ServiceChange = z.infer<typeof serviceChangeSchema>

/**
 * What is about to be done to a service, with what it is now; `earlier` are the changes of the same plan so far. Throws
 * DeploymentError `step_failed` when its state cannot be told, because then nobody could bring it back.
 */
export async function planServiceChange(
  service: Service,
  action: ServiceAction,
  earlier: readonly ServiceChange[],
  signal: AbortSignal,
): Promise<ServiceChange> {
  const state = await readServiceState(service, signal)
  if (!state.known) throw unknownState(service, action, state.evidence)
  const known = earlier.find(change => keyOf(change.service) === keyOf(service) && change.replicas)
  return { service, action, was_running: state.up, replicas: known?.replicas ?? state.replicas }
}

export interface RestoredServices {
  /** Whether any of them runs again as it did before. */
  isRunning: boolean
  /** What could not be brought back, one sentence each. */
  problems: string[]
}

/**
 * Brings the services that a plan touched back to how they were before it, newest first, after the old files are back:
 * what ran is restarted on them, what did not run is stopped. Goes on after a failure and tells each; may be repeated.
 */
export async function restoreServices(changes: readonly ServiceChange[], log: Log): Promise<RestoredServices> {
  const restored: RestoredServices = { isRunning: false, problems: [] }
  for (const change of touchedServices(changes)) {
    try {
      await (change.was_running ? restartAgain(change, log) : stopAgain(change, log))
      restored.isRunning ||= change.was_running
    } catch (error) {
      restored.problems.push(toDeployError(error).message)
    }
  }
  return restored
}

/** A step that failed may have done its work all the same, so what runs is asked, not concluded. */
async function restartAgain({ service, replicas }: ServiceChange, log: Log): Promise<void> {
  await forgetStarts(service)
  // A restart of a Kubernetes deployment leaves it at the none that a stop has made of it.
  if (service.supervisor === 'kubernetes' && !(await readServiceState(service)).up)
    await bringBack(service, 'start', replicas, log)
  try {
    await bringBack(service, 'restart', replicas, log)
  } catch (error) {
    if (service.supervisor !== 'kubernetes') throw error
    await setTimeout(SECOND_RESTART_AFTER_MS)
    await bringBack(service, 'restart', replicas, log)
  }
}

/** A start that was asked for may still be under way where nothing runs yet, so the stop is never left out. */
async function stopAgain({ service, replicas }: ServiceChange, log: Log): Promise<void> {
  try {
    await bringBack(service, 'stop', replicas, log)
  } catch (error) {
    const { known, up } = await readServiceState(service)
    if (!known || up) throw error
  }
}

async function bringBack(service: Service, action: ServiceAction, replicas: number | null, log: Log): Promise<void> {
  log.info(`Back to the old version: ${action} ${describeService(service)}.`)
  await superviseService(service, action, { replicas })
}

/** The first change of each touched service, which knows how it was; the service touched last first. */
function touchedServices(changes: readonly ServiceChange[]): ServiceChange[] {
  const touched = new Map<string, ServiceChange>()
  for (const change of changes) {
    const key = keyOf(change.service)
    const first = touched.get(key) ?? change
    touched.delete(key)
    touched.set(key, first)
  }
  return [...touched.values()].reverse()
}

function unknownState(service: Service, action: ServiceAction, evidence: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `Before ${describeService(service)} gets a ${action}, its state must be known, to bring it back if need be. ${evidence}: nothing was done to it.`,
  )
}

function keyOf(service: Service): string {
  return JSON.stringify(service)
}
