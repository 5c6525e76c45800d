import type { LocalReport } from '../install/reports/local-report.ts'

/**
 * What is off after a rollback, one sentence each, for a reader who has just read the cause: where a restart fails on the
 * old files as it did on the new ones, its sentence is not told again. That a version is unhealthy is, because here it is
 * the old one.
 */
export function rollbackProblems({ rollback, error }: Pick<LocalReport, 'rollback' | 'error'>): string[] {
  const told = error?.code === 'unhealthy' ? undefined : error?.message
  return (rollback?.problems ?? []).map(problem => (problem === told ? 'The same happened again.' : problem))
}
