import { isHostAction, isInstallAction } from '../../core/plan/action.ts'
import type { LocalReport } from '../../install/reports/local-report.ts'

/** A step that failed may have done all or part of its work. */
const RAN: ReadonlySet<string> = new Set(['done', 'warned', 'failed'])

/** The ids of the steps that ran and may have changed more than files. */
export function actingSteps({ steps }: LocalReport): string[] {
  return steps.flatMap(({ id, action, status }) => (isHostAction(action) && RAN.has(status) ? [id] : []))
}

/** True if a step moved a part into its place or removed a part. */
export function hasMovedParts({ steps }: Pick<LocalReport, 'steps'>): boolean {
  return steps.some(({ action, status }) => (isInstallAction(action) || action === 'remove') && status === 'done')
}

/**
 * True if a run was killed while its plan ran. In that case, no entry names the step that was running. A plan that
 * failed has an entry for each of its steps.
 */
export function mayHaveRunUnlisted({ outcome, error, states, steps }: LocalReport): boolean {
  if (outcome === 'success' || error?.code !== 'interrupted') return false
  const hasBegun = states.some(({ state }) => state === 'installing')
  return hasBegun && !steps.some(({ status }) => status === 'failed' || status === 'not_run')
}

/** The `provision` steps that ran: no rollback undoes their work. */
export function provisionSteps({ steps }: LocalReport): LocalReport['steps'] {
  return steps.filter(({ action, status }) => action === 'provision' && RAN.has(status))
}
