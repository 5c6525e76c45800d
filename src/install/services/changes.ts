import { setTimeout } from 'node:timers/promises'
import { DeploymentError, toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import {
  describeService,
  forgetStarts,
  identifyProcess,
  inPast,
  keyOfService,
  type Limits,
  type NamedService,
  PAST_TENSE,
  readServiceState,
  type ServiceAction,
  type ServiceOrder,
  type ServiceState,
  type ServiceTask,
  shortName,
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
  /** Identifies the process before the plan; null if it is not known. Absent in a recovery, which cannot know it. */
  readonly process?: string | null
  /** Set once the supervisor has refused an action and left the service as it was before the plan. */
  isRefused?: boolean
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
  const process = await identifyProcess(task.service, state, { signal })
  return { service: task.service, part, was_running: state.up, replicas: known?.replicas ?? state.replicas, process }
}

/**
 * Performs an action on a service whose state is noted. Logs the supervisor's warnings. Throws as `superviseService`
 * does; a `step_failed` error also says whether the process from before the action still runs. If nothing happened to
 * the service, marks the change as refused.
 */
export async function changeService(
  change: ServiceChange,
  action: ServiceAction,
  { log, signal }: Pick<RestoreOptions, 'log' | 'signal'>,
): Promise<void> {
  try {
    for (const warning of await superviseService({ ...change, action }, { signal })) log.warning(warning)
  } catch (error) {
    signal.throwIfAborted()
    // After a timeout, the supervisor may still be about to act.
    if (!(error instanceof DeploymentError) || error.code !== 'step_failed') throw error
    const state = await readServiceState(change.service, { signal })
    change.isRefused = await isAsBefore(change, state, { signal })
    throw new DeploymentError(error.code, `${error.message} ${aftermath(change, state)}`, { cause: error })
  }
}

/** True if the service is known to have the process that it had before, or, as before, none. */
async function isAsBefore(change: ServiceChange, state: ServiceState, limits: Partial<Limits>): Promise<boolean> {
  const { service, was_running: wasRunning, process = null } = change
  if (!state.known || state.up !== wasRunning || process === null) return false
  return (await identifyProcess(service, state, limits)) === process
}

function aftermath({ service, was_running: wasRunning, isRefused }: ServiceChange, state: ServiceState): string {
  const name = shortName(service)
  if (!state.known) return `Whether ${name} still runs is not known (${state.evidence}).`
  if (isRefused) return wasRunning ? `The old process of ${name} never stopped.` : `${name} was not running before.`
  if (!wasRunning) return `${name} was not running before, and ${state.up ? 'runs now' : 'does not run'}.`
  return state.up ? `The old process of ${name} may have stopped.` : `The old process of ${name} has stopped.`
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
  /** The names in state files of the services that have the same process as before the plan, or, as before, none. */
  untouched: (string | null)[]
  /** Whether a service is known not to run as it did before the plan. */
  isBroken: boolean
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
 * running, and stops the others. Leaves a service alone if an action on it was refused and it is as it was before the
 * plan. Call this function once the old files are back. Continues after a failure, and returns one sentence for each
 * failure. May be called again. Once the signal is aborted, returns the remaining services as not restored.
 */
export async function restoreServices(
  changes: readonly ServiceChange[],
  restoring: RestoreOptions,
): Promise<RestoredServices> {
  const { signal, starts } = restoring
  const restored: RestoredServices = {
    isRunning: false,
    problems: [],
    unrestored: [],
    untouched: [],
    isBroken: false,
    isFinished: true,
  }
  for (const first of firstChanges(changes)) {
    const change = { ...first, isQueued: starts === 'queued' }
    let attempted: ServiceChange = first
    try {
      if (first.process === undefined) attempted = { ...first, process: await processNow(first, restoring) }
      if (await isUntouched(first, restoring)) restored.untouched.push(first.part)
      else await (change.was_running ? restoreRunning(change, restoring) : restoreStopped(change, restoring))
      restored.isRunning ||= change.was_running
    } catch (error) {
      const { message, code } = toDeployError(error)
      const after = code === 'step_failed' ? await compareNow(attempted, restoring) : 'changed'
      if (after === 'same' && first.process !== undefined) {
        restored.untouched.push(first.part)
        restored.isRunning ||= change.was_running
        restoring.log.warning(message)
        continue
      }
      restored.isFinished &&= !signal.aborted
      restored.unrestored.push(first.part)
      restored.problems.push(
        signal.aborted ? notRestored(change) : `${message}${after === 'same' ? OF_SOME_VERSION : ''}`,
      )
      restored.isBroken ||= !signal.aborted && after === 'changed'
    }
  }
  return restored
}

const OF_SOME_VERSION = ' The service still has the process from before this attempt, perhaps of the other version.'

async function processNow({ service }: ServiceChange, restoring: RestoreOptions): Promise<string | null> {
  const limits = limitsOf(restoring)
  return await identifyProcess(service, await readServiceState(service, limits), limits)
}

/** Compares a service with its state before. Never throws. */
async function compareNow(change: ServiceChange, restoring: RestoreOptions): Promise<'same' | 'changed' | 'unknown'> {
  const limits = limitsOf(restoring)
  try {
    const state = await readServiceState(change.service, limits)
    if (!state.known) return 'unknown'
    return (await isAsBefore(change, state, limits)) ? 'same' : 'changed'
  } catch {
    return 'unknown'
  }
}

/** Logs that the service is left alone, because an action on it was refused and it is as it was before the plan. */
async function isUntouched(change: ServiceChange, restoring: RestoreOptions): Promise<boolean> {
  if (!change.isRefused || (await compareNow(change, restoring)) !== 'same') return false
  if (change.was_running) restoring.log.did(`${shortName(change.service)} never stopped`)
  return true
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
  for (const warning of await superviseService(order, limitsOf(restoring))) restoring.log.warning(warning)
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
    touched.set(key, change.isRefused ? { ...first, isRefused: true } : first)
  }
  return [...touched.values()].reverse()
}

function unknownState({ service, action }: ServiceTask, evidence: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `The state of ${describeService(service)} is not known (${evidence}), so a rollback could not restore that state. The service was not ${PAST_TENSE[action]}. Check that this host has the service, and that the supervisor answers.`,
  )
}
