import type { EndedDeployment } from '../install/deployment/deployment.ts'

/** Whether a run has installed something, and nothing was wrong with it. */
export function hasInstalled({ report, error }: EndedDeployment): boolean {
  return report.outcome === 'success' && report.changed && error === undefined
}
