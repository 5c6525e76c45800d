import type { Flows } from '../install/reports/host.ts'
import { MARKETPLACE_TRANSITIONS } from '../marketplace/states.ts'
import { PROJECT_TRANSITIONS } from '../project/states.ts'

/** A run recovers what a dead run left on its host, by whichever contract that one deployed. */
export const FLOWS: Flows = { marketplace: MARKETPLACE_TRANSITIONS, project: PROJECT_TRANSITIONS }
