import type { LocalReport } from '../../install/reports/local-report.ts'

/** What may change more of a host than files. */
const ACTING: ReadonlySet<string> = new Set(['provision', 'stop', 'start', 'restart', 'notify'])

/** A step that failed may have done its work, or a part of it. */
const RAN: ReadonlySet<string> = new Set(['done', 'warned', 'failed'])

/** The ids of the steps that have run and may have changed more than files. */
export function actingSteps({ steps }: LocalReport): string[] {
  return steps.flatMap(({ id, action, status }) => (ACTING.has(action) && RAN.has(status) ? [id] : []))
}

/** The `provision` steps that have run: no rollback undoes what they did. */
export function provisionSteps({ steps }: LocalReport): LocalReport['steps'] {
  return steps.filter(({ action, status }) => action === 'provision' && RAN.has(status))
}
