import type { EndedDeployment } from '../install/deployment/deployment.ts'

/** The kinds of deployments that change a host. Each runs different code, whose compiled form the start keeps. */
export type RunKind = 'first install' | 'update'

/** Returns the kind of a run that changed the host and succeeded without an error; undefined for any other run. */
export function runKindOf({ report, error }: EndedDeployment): RunKind | undefined {
  if (report.outcome !== 'success' || !report.changed || error !== undefined) return undefined
  return report.previous_version === null ? 'first install' : 'update'
}
