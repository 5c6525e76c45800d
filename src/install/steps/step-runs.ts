import { isInstallStep, isMarkerStep, placeOfInstall } from '../../core/plan/plan-binding.ts'
import type { PlanStep } from '../../core/plan/plan-step.ts'
import { placeName } from '../host/layout.ts'
import { findPart, type InstalledPart, type NewPart } from './parts/part.ts'
import type { StepContext } from './step-context.ts'

/**
 * The removal of a part. No plan contains such a step, but the removal is reported with the plan's steps, under the
 * part's name: `<shelf>/<id>` cannot be the id of a step of the plan.
 */
export interface Removal {
  readonly id: string
  readonly action: 'remove'
  readonly part: InstalledPart
}

export type Step = PlanStep | Removal

/** Consecutive steps, and the parts that are switched together when the first of these steps begins. */
export interface StepRun {
  readonly steps: readonly Step[]
  readonly removed: ReadonlyMap<InstalledPart, Step>
  readonly staged: ReadonlyMap<NewPart, Step>
}

/**
 * Divides all steps into runs, in order: first the removals, then the plan's steps. Consecutive steps are one run if
 * each of them removes a part, installs a part that is staged or already in its place, or does nothing. As a result, no
 * slow work comes between the switches of one run.
 */
export function divideIntoRuns(context: StepContext): StepRun[] {
  const { removals, steps } = context.order
  const runs: Step[][] = []
  let isOpen = false
  for (const step of [...removals.map(removalOf), ...steps]) {
    const isQuick = stagedPart(context, step) !== undefined || isInstant(context, step)
    if (isQuick && isOpen) runs.at(-1)?.push(step)
    else runs.push([step])
    isOpen = isQuick
  }
  return runs.map(run => runOf(context, run))
}

function runOf(context: StepContext, steps: readonly Step[]): StepRun {
  const removed = new Map<InstalledPart, Step>()
  const staged = new Map<NewPart, Step>()
  for (const step of steps) {
    const part = stagedPart(context, step)
    if (step.action === 'remove') removed.set(step.part, step)
    if (part !== undefined) staged.set(part, step)
  }
  return { steps, removed, staged }
}

/** Returns the staged part that a step installs, if it installs one. */
function stagedPart({ order }: StepContext, step: Step): NewPart | undefined {
  if (step.action === 'remove' || !isInstallStep(step)) return undefined
  const part = findPart(order.parts, placeOfInstall(step))
  return part === undefined || part.intact !== undefined || part.retained !== undefined ? undefined : part
}

function isInstant({ order, idle }: StepContext, step: Step): boolean {
  if (step.action === 'remove' || order.skipped.has(step.id) || isMarkerStep(step)) return true
  switch (step.action) {
    case 'install_plugin':
    case 'install_extension':
      return findPart(order.parts, placeOfInstall(step))?.intact !== undefined
    case 'provision':
    case 'stop':
    case 'notify':
      return idle.has(step.id)
    case 'write_env':
    case 'start':
    case 'restart':
    case 'healthcheck':
      return false
  }
}

function removalOf(part: InstalledPart): Removal {
  return { id: placeName(part), action: 'remove', part }
}
