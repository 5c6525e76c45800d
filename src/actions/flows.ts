import type { Flows } from '../install/reports/host.ts'
import type { EndedDeployment } from '../install/run/deployment.ts'
import { MARKETPLACE_TRANSITIONS } from '../marketplace/deployment.ts'
import { PROJECT_TRANSITIONS } from '../project/deployment.ts'
import { ROLLBACK_TRANSITIONS } from '../rollback/deployment.ts'

/** Every action knows every flow, because a run recovers whatever a dead run left on its host. */
export const FLOWS: Flows = {
  marketplace: MARKETPLACE_TRANSITIONS,
  project: PROJECT_TRANSITIONS,
  rollback: ROLLBACK_TRANSITIONS,
}

/** The kinds of deployments that change a host. Each runs different code, whose compiled form the start keeps. */
export type RunKind = 'first install' | 'update'

/** Returns the kind of a run that changed the host and succeeded without an error; undefined for any other run. */
export function runKindOf({ report, error }: EndedDeployment): RunKind | undefined {
  if (report.outcome !== 'success' || !report.changed || error !== undefined) return undefined
  return report.previous_version === null ? 'first install' : 'update'
}
