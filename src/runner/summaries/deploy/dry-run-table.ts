import { cellOf, code, table } from '../../../core/markdown.ts'
import { listFirst } from '../../../core/quantities.ts'
import { type DryRunResult, sizesInWords } from '../../../install/deployment/dry-run/dry-run-result.ts'
import type { PlannedStep } from '../../../install/transaction/record.ts'

const MAX_ROWS = 100
const MAX_PATH_CHARS = 200
const MAX_PARTS = 20
const MAX_STEPS = 20

/** Lists the parts and files that a real run would change, and the steps that it would run. */
export function dryRunBlocks(dryRun: DryRunResult, steps: readonly PlannedStep[]): string[] {
  const { changes, parts, count } = dryRun
  const rows = changes
    .slice(0, MAX_ROWS)
    .map(change => [change.how, code(change.path, MAX_PATH_CHARS), sizesInWords(change)])
  const more = count - rows.length
  return [
    'This was a dry run: nothing below project-root was written, and nothing was reported.',
    ...parts.slice(0, MAX_PARTS).map(({ sentence }) => cellOf(sentence, MAX_PATH_CHARS * 3)),
    ...(rows.length === 0 ? [] : [table(['', 'File', 'Size'], rows)]),
    ...(more > 0 ? [`And ${dryRun.countInWords(more, 'more file')}. A real run would ${dryRun.inDetail()}.`] : []),
    ...stepsLine(steps),
  ]
}

function stepsLine(steps: readonly PlannedStep[]): string[] {
  if (steps.length === 0) return []
  const names = steps.map(({ id, action }) => `${code(id, MAX_PATH_CHARS)} ${cellOf(action, MAX_PATH_CHARS)}`)
  return [`Steps: ${listFirst(names, MAX_STEPS, ' → ')}`]
}
