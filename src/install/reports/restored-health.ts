import type { LocalReport } from './local-report.ts'
import { rollbackProblems } from './rollback-problems.ts'

/**
 * Warns the operator if the version that a rollback restored is unhealthy too, so that nothing healthy runs. Returns
 * undefined otherwise.
 */
export function restoredUnhealthy(report: LocalReport): string | undefined {
  if (report.rollback?.healthy !== false) return undefined
  const { slug, previous_version: version, host_id: host } = report
  const restored = version === null ? 'what was installed before it' : version
  return `A deployment of ${slug} was rolled back, but ${restored}, which is installed again, is not healthy on ${host}: repair its service, or the health check if that is wrong. ${rollbackProblems(report).join(' ')}`
}
