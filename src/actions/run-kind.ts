import type { EndedDeployment } from '../install/deployment/deployment.ts'

/** The kinds of runs that install something. They need different code. */
export type RunKind = 'first install' | 'update'

/** Returns the kind of a run that installed something and ended without an error; undefined for any other run. */
export function runKindOf({ report, error }: EndedDeployment): RunKind | undefined {
  if (report.outcome !== 'success' || !report.changed || error !== undefined) return undefined
  return report.previous_version === null ? 'first install' : 'update'
}
