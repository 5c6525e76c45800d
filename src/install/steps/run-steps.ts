import { performance } from 'node:perf_hooks'
import type { PlanStep } from '../../core/plan/plan-step.ts'
import { placeName } from '../host/layout.ts'
import { healthchecksOf, type RestoredCheck } from '../services/healthchecks.ts'
import type { StepEntry } from '../transaction/facts.ts'
import { announceSkipped } from './idle-steps.ts'
import type { InstalledPart } from './part.ts'
import { performStep } from './perform-step.ts'
import { removePart } from './remove-part.ts'
import { warnOfDrift } from './report-drift.ts'
import { warnOfMissingEnv } from './settings-notices.ts'
import type { InstallOrder, StepContext } from './step-context.ts'

/** How a step ended that did not fail; a warning says why it did not do its work, though the plan continues. */
export type StepEnd = StepStatus | StepResult | { warning: string }

type StepStatus = 'done' | 'unchanged' | 'skipped'

export interface StepResult {
  readonly status: StepStatus
  /** In a few words: `58 files changed, 2 added`. */
  readonly did: string
  /** The same where a reader does not see which part the step is about. */
  readonly story?: string
  /** Of a health check: the parts that it has examined. */
  readonly checked?: readonly string[]
}

/** No plan has this step: it is reported with the plan's steps, under the part's name, which no step's id can be. */
interface Removal {
  readonly id: string
  readonly action: 'remove'
  readonly part: InstalledPart
}

/**
 * Removes what the new version does not contain, then runs the plan's steps in their order, and records each with its
 * duration; calls `beforeStep` before each of the plan's. After the first that throws, records the others as not run
 * and throws its error as it is.
 */
export async function runSteps(context: StepContext, beforeStep: (step: PlanStep) => Promise<void>): Promise<void> {
  const { order, deployment, transaction, idle } = context
  deployment.record.noteIdle(idle)
  await transaction.noteHealthchecks(restoredChecks(order))
  const steps = [...order.removals.map(removalOf), ...order.steps]
  for (const [index, step] of steps.entries()) {
    const finish = startEntry(step)
    try {
      deployment.tools.signal.throwIfAborted()
      if (step.action !== 'remove') await beforeStep(step)
      const end = step.action === 'remove' ? await removePart(context, step.part) : await performStep(context, step)
      await deployment.record.addStep(finish(end))
      if (typeof end === 'object' && 'did' in end) deployment.tools.log.did(end.story ?? end.did)
    } catch (error) {
      await deployment.record.addStep(finish({ failed: error instanceof Error ? error.message : String(error) }))
      for (const left of steps.slice(index + 1)) await deployment.record.addStep(notRun(left))
      announce(context)
      throw error
    }
  }
  announce(context)
  warnOfMissingEnv(context)
}

/** What concerns several steps, in one line each. */
function announce({ deployment, idle }: StepContext): void {
  announceSkipped(deployment, idle)
  warnOfDrift(deployment)
}

/** Starts the entry of one step; what is returned finishes it. */
export function startEntry({ id, action }: PlanStep | Removal): (end: StepEnd | { failed: string }) => StepEntry {
  const started = performance.now()
  return end => {
    const duration_ms = Math.round(performance.now() - started)
    if (typeof end === 'string') return { id, action, status: end, duration_ms, error: null }
    if ('did' in end) return { id, action, status: end.status, duration_ms, error: null, ...resultOf(end) }
    if ('failed' in end) return { id, action, status: 'failed', duration_ms, error: end.failed }
    return { id, action, status: 'warned', duration_ms, error: end.warning }
  }
}

function resultOf({ did, checked }: StepResult): Pick<StepEntry, 'did' | 'checked'> {
  return checked === undefined ? { did } : { did, checked: [...checked] }
}

function notRun({ id, action }: PlanStep | Removal): StepEntry {
  return { id, action, status: 'not_run', duration_ms: 0, error: null }
}

function removalOf(part: InstalledPart): Removal {
  return { id: placeName(part), action: 'remove', part }
}

/** How to check the old versions after a rollback. */
function restoredChecks({ steps, parts, hostConfig, skipped }: InstallOrder): RestoredCheck[] {
  if (hostConfig === undefined) return []
  const previous = new Map(parts.map(part => [part.id, part.previous.version]))
  return steps
    .flatMap(step =>
      step.action === 'healthcheck' && !skipped.has(step.id)
        ? healthchecksOf(step, hostConfig, [...previous.keys()])
        : [],
    )
    .map(check => ({ ...check, previous_version: previous.get(check.id) ?? null }))
}
