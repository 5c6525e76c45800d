import type { Flows } from '../install/reports/host.ts'
import { MARKETPLACE_TRANSITIONS } from '../marketplace/deployment.ts'
import { PROJECT_TRANSITIONS } from '../project/deployment.ts'
import { ROLLBACK_TRANSITIONS } from '../rollback/deployment.ts'

/** Every action knows every flow, because a run recovers whatever a dead run left on its host. */
export const FLOWS: Flows = {
  marketplace: MARKETPLACE_TRANSITIONS,
  project: PROJECT_TRANSITIONS,
  rollback: ROLLBACK_TRANSITIONS,
}
