import type { LocalReport } from '../install/reports/local-report.ts'

/**
 * What is wrong after a rollback, one sentence each, for a reader who has just read the cause. Does not repeat the
 * sentence of a restart that fails for the old version as for the new one; an unhealthy old version does get its own
 * sentence.
 */
export function rollbackProblems({ rollback, error }: Pick<LocalReport, 'rollback' | 'error'>): string[] {
  const cause = error?.code === 'unhealthy' ? undefined : error?.message
  return (rollback?.problems ?? []).map(problem => (problem === cause ? 'The same happened again.' : problem))
}
