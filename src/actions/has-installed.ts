import type { EndedDeployment } from '../install/deployment/deployment.ts'

/** True if a run installed something and ended without an error. */
export function hasInstalled({ report, error }: EndedDeployment): boolean {
  return report.outcome === 'success' && report.changed && error === undefined
}
