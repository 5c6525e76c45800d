import type { LocalReport } from './local-report.ts'

/**
 * What is wrong after a rollback, one sentence each, for a reader who has just read the cause. Does not repeat the
 * sentence of a restart that fails for the old version as for the new one; an unhealthy old version does get its own
 * sentence.
 */
export function rollbackProblems({ rollback, error }: Pick<LocalReport, 'rollback' | 'error'>): string[] {
  const cause = error === null || error.code === 'unhealthy' ? undefined : withoutStep(error)
  return (rollback?.problems ?? []).map(problem => (problem === cause ? 'The same happened again.' : problem))
}

/** What went wrong in the step, without the step's id. */
export function withoutStep({ message, step }: NonNullable<LocalReport['error']>): string {
  return step !== null && message.startsWith(`${step}: `) ? message.slice(step.length + 2) : message
}
