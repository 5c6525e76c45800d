import { listFirst } from '../../core/quantities.ts'
import type { PlannedStep } from '../transaction/record.ts'

const MAX_LISTED = 20

/** Lists the steps of a plan in their order, in one line. */
export function describeSequence(steps: readonly PlannedStep[]): string {
  const named = steps.map(({ id, action }) => `${id} (${action})`)
  return listFirst(named, MAX_LISTED, ' → ')
}
