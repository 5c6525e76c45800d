import type { EndedDeployment } from '../install/deployment/deployment.ts'

/** The kinds of runs that install something. They need different code. */
export type Installation = 'first install' | 'update'

/** Returns what a run installed, if it ended without an error; undefined if it installed nothing. */
export function installationOf({ report, error }: EndedDeployment): Installation | undefined {
  if (report.outcome !== 'success' || !report.changed || error !== undefined) return undefined
  return report.previous_version === null ? 'first install' : 'update'
}
