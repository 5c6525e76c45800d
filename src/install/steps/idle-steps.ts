import { isHostAction } from '../../core/plan/action.ts'
import { isInstallStep, placeOfInstall, placeOfSettings, subjectIdOf } from '../../core/plan/plan-binding.ts'
import type { PlanStep } from '../../core/plan/plan-step.ts'
import { placeName } from '../host/layout.ts'
import type { Deployment } from '../transaction/context.ts'
import { isPending } from '../transaction/pending-services.ts'
import type { PlannedStep } from '../transaction/record.ts'
import type { Part } from './parts/part.ts'
import { servicesOf } from './services-of.ts'
import { missingSettings } from './settings/written-settings.ts'
import type { InstallOrder } from './step-context.ts'

/**
 * Returns the ids of the steps that act on services or run commands only for parts that this deployment leaves as they
 * are. Excludes steps for services that are still pending. If one of a plugin's steps that act on services or run commands depends on a step that changes a part, excludes
 * all of these steps of the plugin. A step without `plugin` concerns all parts. Must be called before the first step, so
 * that a `stop` is skipped together with its `start`. Returns no ids with `redeploy`.
 */
export function findIdleSteps(deployment: Deployment, order: InstallOrder): ReadonlySet<string> {
  const { request } = deployment
  if (request.redeploy) return new Set()
  const changed = order.parts.filter(part => isChanging(deployment, order, part))
  const changing = new Set([...changed.map(({ id }) => id), ...findDependent(order, changed)])
  const isAnyChanging = changed.length > 0 || order.removals.length > 0
  const known = new Set(order.parts.map(({ id }) => id))
  const isIdle = (step: PlanStep): boolean => {
    const id = subjectIdOf(step)
    return (
      isHostAction(step.action) &&
      !order.skipped.has(step.id) &&
      !isOverdue(deployment, order, step) &&
      !(id !== undefined && known.has(id) ? changing.has(id) : isAnyChanging)
    )
  }
  return new Set(order.steps.filter(isIdle).map(({ id }) => id))
}

/** True if a step is about a service that is pending, although this run has tried to restart it. */
function isOverdue({ layout, record }: Deployment, order: InstallOrder, step: PlanStep): boolean {
  if (step.action !== 'stop' && step.action !== 'start' && step.action !== 'restart') return false
  if (order.hostConfig === undefined) return false
  return servicesOf(order, step.plugin).some(({ part }) => isPending(layout, part, record.facts))
}

/**
 * Returns the `plugin` of each step that acts on the host and depends, directly or indirectly, on a step that changes
 * one of these parts.
 */
function findDependent({ steps }: InstallOrder, changed: readonly Part[]): string[] {
  const places = new Set(changed.map(placeName))
  const reached = new Set<string>()
  for (const step of steps)
    if (places.has(placeOfChange(step) ?? '') || step.dependsOn.some(id => reached.has(id))) reached.add(step.id)
  return steps.flatMap(step =>
    isHostAction(step.action) && reached.has(step.id) && 'plugin' in step ? [step.plugin] : [],
  )
}

/** Returns the place of the part that a step installs, or whose settings the step creates. */
function placeOfChange(step: PlanStep): string | undefined {
  if (step.action === 'write_env') return placeOfSettings(step)
  return isInstallStep(step) ? placeOfInstall(step) : undefined
}

/**
 * True if a part is not intact, or if a settings file of the part is missing. Creating that file counts as a change,
 * even for earlier steps.
 */
function isChanging(deployment: Deployment, order: InstallOrder, part: Part): boolean {
  return part.intact === undefined || missingSettings(deployment, order, part).length > 0
}

/**
 * Logs in one line which steps were skipped because nothing changes for them. Call this function once no further step
 * runs.
 */
export function announceSkipped({ tools, record }: Recorded, idle: ReadonlySet<string>): void {
  const skipped = record.steps.filter(({ id, status }) => idle.has(id) && status === 'skipped')
  if (skipped.length > 0)
    tools.log.info(`Nothing changes for these steps, which were skipped: ${namesOf(skipped)}.${remedyOf(record)}`)
}

/**
 * In a dry run, notes in the record which steps a real run would skip because nothing changes for them, and logs these
 * steps in one line.
 */
export function announceIdleSteps({ tools, record }: Recorded, idle: ReadonlySet<string>): void {
  record.noteIdle(idle)
  const skipped = record.plannedSteps.filter(({ isIdle }) => isIdle)
  if (skipped.length === 0) return
  const isAnyService = skipped.some(({ action }) => action === 'restart' || action === 'start')
  const exception = isAnyService ? ' A service of these steps that is not running would be started.' : ''
  tools.log.info(
    `Nothing changes for these steps, which would be skipped: ${namesOf(skipped)}.${exception}${remedyOf(record)}`,
  )
}

type Recorded = Pick<Deployment, 'tools' | 'record'>

/** A rollback has no input `redeploy`. */
function remedyOf({ facts }: Recorded['record']): string {
  return facts.rollback_of === undefined ? ' With redeploy: true, these steps run.' : ''
}

function namesOf(steps: readonly PlannedStep[]): string {
  return steps.map(({ id, action }) => `${id} (${action})`).join(', ')
}
