import type { PlannedStep } from '../transaction/record.ts'

const MAX_LISTED = 20

/** The steps of a plan in their order, for one line. */
export function describeSequence(steps: readonly PlannedStep[]): string {
  const more = steps.length - MAX_LISTED
  const listed = steps.slice(0, MAX_LISTED).map(({ id, action }) => `${id} (${action})`)
  return `${listed.join(' → ')}${more > 0 ? ` and ${more} more` : ''}`
}
