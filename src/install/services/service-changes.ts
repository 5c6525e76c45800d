import { setTimeout } from 'node:timers/promises'
import { z } from 'zod/mini'
import { DeploymentError, toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { inPast, PAST_TENSE, type ServiceOrder, type ServiceTask } from './commands.ts'
import { describeService, keyOfService, type Service, serviceSchema } from './service.ts'
import { forgetStarts, type Limits, readServiceState, superviseService } from './supervise.ts'

/** kubectl refuses to restart a deployment that was restarted within the same second. */
const SECOND_RESTART_AFTER_MS = 1500
/** A supervisor's command line that ignores SIGTERM has done its part by then. */
const ABORT_GRACE_MS = 500

/** A plan's action on a service, and the service's state before it; as written to the journal. */
export const serviceChangeSchema = z.lazy(() =>
  z.object({
    service: serviceSchema,
    action: z.enum(['start', 'stop', 'restart']),
    was_running: z.boolean(),
    /** The replicas of a Kubernetes deployment before the plan; null elsewhere. */
    replicas: z.nullable(z.int().check(z.nonnegative())),
  }),
)
export type ServiceChange = z.infer<typeof serviceChangeSchema>

/**
 * Returns a task with the service's present state; `earlier` are the changes of the same plan so far. Throws
 * DeploymentError `step_failed` if the state is unknown, because then no rollback could restore it.
 */
export async function planServiceChange(
  task: ServiceTask,
  earlier: readonly ServiceChange[],
  signal: AbortSignal,
): Promise<ServiceChange> {
  const state = await readServiceState(task.service, { signal })
  if (!state.known) throw unknownState(task, state.evidence)
  const known = earlier.find(change => keyOfService(change.service) === keyOfService(task.service) && change.replicas)
  return { ...task, was_running: state.up, replicas: known?.replicas ?? state.replicas }
}

/**
 * The time at which restored services start. `queued`: systemd starts them only after the unit in which this process
 * runs, so this process cannot wait for them.
 */
export type ServiceStarts = 'now' | 'queued'

export interface RestoredServices {
  /** Whether any of them runs again as before. */
  isRunning: boolean
  /** The failures, one sentence each. */
  problems: string[]
  /** The services that could not be restored, or were not reached. */
  unrestored: Service[]
  /** Whether there was time for all services. */
  isFinished: boolean
}

export interface Restoring {
  readonly log: Log
  /** Ends the restoration early. */
  readonly signal: AbortSignal
  /** Default `now`. */
  readonly starts?: ServiceStarts
}

/**
 * Restores the state that the services of a plan had before it, newest change first, once the old files are back:
 * restarts those that ran and stops those that did not. Continues after a failure and reports each; may be repeated.
 * Once the signal is aborted, reports the services that are left.
 */
export async function restoreServices(
  changes: readonly ServiceChange[],
  restoring: Restoring,
): Promise<RestoredServices> {
  const { signal, starts } = restoring
  const restored: RestoredServices = { isRunning: false, problems: [], unrestored: [], isFinished: true }
  for (const first of firstChanges(changes)) {
    const change = { ...first, isQueued: starts === 'queued' }
    try {
      await (change.was_running ? restoreRunning(change, restoring) : restoreStopped(change, restoring))
      restored.isRunning ||= change.was_running
    } catch (error) {
      restored.isFinished &&= !signal.aborted
      restored.unrestored.push(first.service)
      restored.problems.push(signal.aborted ? notRestored(change) : toDeployError(error).message)
    }
  }
  return restored
}

function notRestored({ service }: ServiceChange): string {
  return `A cancelled run had no time to restore ${describeService(service)}: its post step or the next run does so.`
}

type QueueableChange = ServiceChange & Pick<ServiceOrder, 'isQueued'>

/** Does not rely on the plan's result: a step that failed may still have done its work. */
async function restoreRunning(change: QueueableChange, restoring: Restoring): Promise<void> {
  const { service } = change
  await forgetStarts(service, within(restoring))
  // A restart of a Kubernetes deployment keeps the zero replicas that a stop left.
  if (service.supervisor === 'kubernetes' && !(await readServiceState(service, within(restoring))).up)
    await restore({ ...change, action: 'start' }, restoring)
  try {
    await restore({ ...change, action: 'restart' }, restoring)
  } catch (error) {
    if (service.supervisor !== 'kubernetes') throw error
    await setTimeout(SECOND_RESTART_AFTER_MS, undefined, { signal: restoring.signal })
    await restore({ ...change, action: 'restart' }, restoring)
  }
}

/** Never omits the stop: a start may still be under way while nothing runs yet. */
async function restoreStopped(change: QueueableChange, restoring: Restoring): Promise<void> {
  try {
    await restore({ ...change, action: 'stop' }, restoring)
  } catch (error) {
    const { known, up } = await readServiceState(change.service, within(restoring))
    if (!known || up) throw error
  }
}

async function restore(order: ServiceOrder, restoring: Restoring): Promise<void> {
  restoring.log.info(`${order.action} ${describeService(order.service)}`)
  await superviseService(order, within(restoring))
  restoring.log.did(inPast(order))
}

function within({ signal }: Restoring): Partial<Limits> {
  return { signal, abortGraceMs: ABORT_GRACE_MS }
}

/**
 * Returns the first change of each service, which contains its state before the plan; the service changed last is
 * first.
 */
function firstChanges(changes: readonly ServiceChange[]): ServiceChange[] {
  const touched = new Map<string, ServiceChange>()
  for (const change of changes) {
    const key = keyOfService(change.service)
    const first = touched.get(key) ?? change
    touched.delete(key)
    touched.set(key, first)
  }
  return [...touched.values()].reverse()
}

function unknownState({ service, action }: ServiceTask, evidence: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `The state of ${describeService(service)} is not known (${evidence}), so a rollback could not restore it: it was not ${PAST_TENSE[action]}. Check that the supervisor answers on this host.`,
  )
}
