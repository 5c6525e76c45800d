import type { LocalReport } from './local-report.ts'
import { rollbackProblems } from './rollback-problems.ts'

/**
 * Returns a warning for the operator if the version that a rollback restored is not healthy, or if a service could not
 * be restored. Otherwise returns undefined.
 */
export function restoredUnhealthy(report: LocalReport): string | undefined {
  if (report.rollback?.healthy !== false) return undefined
  const problems = rollbackProblems(report).join(' ')
  const { slug, previous_version: version, host_id: host } = report
  if (version === null && report.unrecorded !== true)
    return `A deployment of ${slug} was rolled back, but a service on ${host} is not as it was before: repair that service. ${problems}`
  const restored = version === null ? 'the previous version' : version
  return `A deployment of ${slug} was rolled back, but ${restored}, which is installed again, is not healthy on ${host}: repair its service, or correct its health check. ${problems}`
}
