import { cellOf, code, table } from '../../../core/markdown.ts'
import { isMarkerAction } from '../../../core/plan/action.ts'
import { countInWords, durationInWords } from '../../../core/quantities.ts'
import type { LocalReport } from '../../../install/reports/local-report.ts'
import { withoutStep } from '../../../install/reports/rollback-problems.ts'

type Step = LocalReport['steps'][number]

const MAX_ROWS = 100
const MAX_CELL_CHARS = 200
const MAX_ID_CHARS = 130

/** The result and the duration of each step, as one table. A step that failed the run is always listed. */
export function stepsTable({ steps, error, outcome }: LocalReport): string[] {
  if (steps.length === 0) return []
  const isListed = (step: Step, index: number): boolean => index < MAX_ROWS || step.status === 'failed'
  const listed = steps.filter(isListed).slice(0, MAX_ROWS + 1)
  const rows = listed.map(step => [
    `${MARKS[step.status]} ${code(step.id, MAX_ID_CHARS)} ${cellOf(step.action, MAX_ID_CHARS)}`,
    cellOf(resultOf(step, error), MAX_CELL_CHARS),
    step.status === 'not_run' || step.status === 'skipped'
      ? ''
      : durationInWords(step.duration_ms).replaceAll(' ', '&nbsp;'),
  ])
  const more = steps.length - listed.length
  const did = outcome === 'rolled_back' ? 'What it did, until it was rolled back' : 'What it did'
  return [table(['Step', did, 'Took'], rows), ...(more > 0 ? [`And ${countInWords(more, 'more step')}.`] : [])]
}

const MARKS: Record<Step['status'], string> = {
  done: '✓',
  unchanged: '✓',
  skipped: '–',
  warned: '⚠️',
  failed: '✗',
  not_run: '–',
}

/** The summary gives the cause of a failed step above the table, but the cause of a warning only in the table. */
function resultOf(step: Step, error: LocalReport['error']): string {
  switch (step.status) {
    case 'done':
      return step.did ?? (isMarkerAction(step.action) ? 'nothing to do' : 'done')
    case 'unchanged':
      return step.did ?? 'unchanged'
    case 'skipped':
      return 'skipped'
    case 'not_run':
      return 'not run'
    case 'warned':
      return step.error ?? 'warned'
    case 'failed':
      return step.error === null || (error?.step === step.id && withoutStep(error) === step.error)
        ? 'failed'
        : `failed: ${step.error}`
  }
}
