import { setTimeout } from 'node:timers/promises'
import { DeploymentError, toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import {
  describeService,
  forgetStarts,
  inPast,
  keyOfService,
  type Limits,
  type NamedService,
  PAST_TENSE,
  readServiceState,
  type ServiceAction,
  type ServiceOrder,
  type ServiceTask,
  superviseService,
} from './supervise.ts'

/** kubectl refuses to restart a deployment that was restarted within the same second. */
const SECOND_RESTART_AFTER_MS = 1500
/** A supervisor's command line that ignores SIGTERM is killed after this time; it has passed on its order by then. */
const ABORT_GRACE_MS = 500

/** A service that a plan acts on, and its state before that. */
export interface ServiceChange extends NamedService {
  readonly was_running: boolean
  /** The replicas of a Kubernetes deployment before the plan. Null elsewhere, and in a recovery, which cannot know. */
  readonly replicas: number | null
}

/**
 * Returns the service with its current state, and with the replicas before the same plan's `earlier` changes.
 * Throws DeploymentError `step_failed` if the state is unknown, because no rollback could restore an unknown state.
 */
export async function planServiceChange(
  { part, ...task }: NamedService & { readonly action: ServiceAction },
  earlier: readonly ServiceChange[],
  signal: AbortSignal,
): Promise<ServiceChange> {
  const state = await readServiceState(task.service, { signal })
  if (!state.known) throw unknownState(task, state.evidence)
  const known = earlier.find(change => keyOfService(change.service) === keyOfService(task.service) && change.replicas)
  return { service: task.service, part, was_running: state.up, replicas: known?.replicas ?? state.replicas }
}

/**
 * When restored services start. `queued`: systemd starts them only once the unit of this process has started, so this
 * process cannot wait for them.
 */
export type ServiceStarts = 'now' | 'queued'

export interface RestoredServices {
  /** Whether at least one of the services that were running before the plan is running again. */
  isRunning: boolean
  /** The failures, one sentence each. */
  problems: string[]
  /** The names in state files of the services that could not be restored, or were not reached. */
  unrestored: (string | null)[]
  /** Whether there was time for all services. */
  isFinished: boolean
}

export interface RestoreOptions {
  readonly log: Log
  /** Ends the restoration early. */
  readonly signal: AbortSignal
  /** Default `now`. */
  readonly starts?: ServiceStarts
}

/**
 * Restores the state that a plan's services had before the plan, newest change first: restarts the services that were
 * running, and stops the others. Call this function once the old files are back. Continues after a failure, and returns
 * one sentence for each failure. May be called again. Once the signal is aborted, returns the remaining services as not
 * restored.
 */
export async function restoreServices(
  changes: readonly ServiceChange[],
  restoring: RestoreOptions,
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
      restored.unrestored.push(first.part)
      restored.problems.push(signal.aborted ? notRestored(change) : toDeployError(error).message)
    }
  }
  return restored
}

function notRestored({ service }: ServiceChange): string {
  return `A cancelled run had no time to restore ${describeService(service)}: its post step or the next run does that.`
}

type QueueableChange = ServiceChange & Pick<ServiceOrder, 'isQueued'>

/** Restarts the service even if the step that changed it failed, because that step may still have taken effect. */
async function restoreRunning(change: QueueableChange, restoring: RestoreOptions): Promise<void> {
  const { service } = change
  await forgetStarts(service, limitsOf(restoring))
  // A restart of a Kubernetes deployment keeps the replica count of zero that a stop has set.
  if (service.supervisor === 'kubernetes' && !(await readServiceState(service, limitsOf(restoring))).up)
    await scaleUp(change, restoring)
  try {
    await restore({ ...change, action: 'restart' }, restoring)
  } catch (error) {
    if (service.supervisor !== 'kubernetes') throw error
    await setTimeout(SECOND_RESTART_AFTER_MS, undefined, { signal: restoring.signal })
    await restore({ ...change, action: 'restart' }, restoring)
  }
}

async function scaleUp(change: QueueableChange, restoring: RestoreOptions): Promise<void> {
  await restore({ ...change, action: 'start' }, restoring)
  if (change.replicas === null)
    restoring.log.warning(
      `${describeService(change.service)} had been stopped, and now has 1 replica: only the run that stopped it knew how many it had. Scale it if it needs more.`,
    )
}

/** Never omits the stop: a start may still be underway while nothing runs yet. */
async function restoreStopped(change: QueueableChange, restoring: RestoreOptions): Promise<void> {
  try {
    await restore({ ...change, action: 'stop' }, restoring)
  } catch (error) {
    const { known, up } = await readServiceState(change.service, limitsOf(restoring))
    if (!known || up) throw error
  }
}

async function restore(order: ServiceOrder, restoring: RestoreOptions): Promise<void> {
  restoring.log.info(`${order.action} ${describeService(order.service)}`)
  await superviseService(order, limitsOf(restoring))
  restoring.log.did(inPast(order))
}

function limitsOf({ signal }: RestoreOptions): Partial<Limits> {
  return { signal, abortGraceMs: ABORT_GRACE_MS }
}

/**
 * Returns the first change of each service, which contains the service's state before the plan. The service that was
 * changed last comes first.
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
    `The state of ${describeService(service)} is not known (${evidence}), so a rollback could not restore that state. The service was not ${PAST_TENSE[action]}. Check that this host has the service, and that the supervisor answers.`,
  )
}
