import { performance } from 'node:perf_hooks'
import type { StepEntry } from '../transaction/facts.ts'
import type { DeploymentRecord } from '../transaction/record.ts'

/** How a step ended that did not fail; a warning is why one did not do its work, though the plan goes on. */
export type StepEnd = 'done' | 'unchanged' | 'skipped' | { warning: string }

/**
 * Runs steps in the given order and records each with its duration. At the first that throws, the others are recorded
 * as not run and its error is thrown as it is.
 */
export async function runSteps<Step extends Pick<StepEntry, 'id' | 'action'>>(
  steps: readonly Step[],
  record: DeploymentRecord,
  signal: AbortSignal,
  perform: (step: Step) => Promise<StepEnd>,
): Promise<void> {
  for (const [index, step] of steps.entries()) {
    const started = performance.now()
    const entry = (status: StepEntry['status'], error: string | null): StepEntry => ({
      id: step.id,
      action: step.action,
      status,
      duration_ms: Math.round(performance.now() - started),
      error,
    })
    try {
      signal.throwIfAborted()
      const end = await perform(step)
      await record.addStep(typeof end === 'string' ? entry(end, null) : entry('warned', end.warning))
    } catch (error) {
      await record.addStep(entry('failed', error instanceof Error ? error.message : String(error)))
      for (const { id, action } of steps.slice(index + 1)) {
        await record.addStep({ id, action, status: 'not_run', duration_ms: 0, error: null })
      }
      throw error
    }
  }
}
