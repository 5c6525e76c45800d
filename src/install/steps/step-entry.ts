import { monotonicMs } from '../../core/monotonic.ts'
import type { StepEntry } from '../transaction/facts.ts'
import type { Step } from './step-runs.ts'

/**
 * The end of a step that did not fail. A warning says why the step did not do its work, although the plan continues.
 */
export type StepEnd = StepStatus | StepResult | { warning: string }

type StepStatus = 'done' | 'unchanged' | 'skipped'

export interface StepResult {
  readonly status: StepStatus
  /** In a few words: `58 files changed, 2 added`. */
  readonly did: string
  /** The same for a reader who does not see which part the step is about. */
  readonly story?: string
  /** The parts that a health check has examined. */
  readonly checked?: readonly string[]
}

/** Starts to measure the time of one step. The returned function builds the entry of that step. */
export function startEntry(step: Step): (end: StepEnd | { failed: string }) => StepEntry {
  const started = monotonicMs()
  return end => entryOf(step, end, monotonicMs() - started)
}

/** Builds the entry of a step that has taken this many milliseconds. */
export function entryOf({ id, action }: Step, end: StepEnd | { failed: string }, milliseconds: number): StepEntry {
  const duration_ms = Math.round(milliseconds)
  if (typeof end === 'string') return { id, action, status: end, duration_ms, error: null }
  if ('did' in end) return { id, action, status: end.status, duration_ms, error: null, ...resultOf(end) }
  if ('failed' in end) return { id, action, status: 'failed', duration_ms, error: end.failed }
  return { id, action, status: 'warned', duration_ms, error: end.warning }
}

/** Builds the entry of a step that was not run. */
export function notRun({ id, action }: Step): StepEntry {
  return { id, action, status: 'not_run', duration_ms: 0, error: null }
}

function resultOf({ did, checked }: StepResult): Pick<StepEntry, 'did' | 'checked'> {
  return checked === undefined ? { did } : { did, checked: [...checked] }
}
