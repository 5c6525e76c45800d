import type { Transitions } from '../core/state-machine.ts'
import { PLAN_TRANSITIONS, type PlanState } from '../install/deployment/plan-states.ts'

export type DeployState = 'pending' | 'fetching' | 'verifying_signature' | 'extracting' | PlanState

/** The states of the marketplace flow. Every path to `installing` passes `verifying_signature`. */
export const MARKETPLACE_TRANSITIONS: Transitions<DeployState> = {
  pending: ['fetching'],
  fetching: ['verifying_signature', 'failed'],
  verifying_signature: ['extracting', 'failed'],
  extracting: ['loading_plan', 'failed'],
  ...PLAN_TRANSITIONS,
}

export type CheckState = 'pending' | 'loading_plan' | 'healthchecking' | 'succeeded' | 'failed'

/** The states of a check of the installed version. */
export const CHECK_TRANSITIONS: Transitions<CheckState> = {
  pending: ['loading_plan'],
  loading_plan: ['healthchecking', 'failed'],
  healthchecking: ['succeeded', 'failed'],
  succeeded: [],
  failed: [],
}
