import type { Transitions } from '../core/state-machine.ts'
import { PLAN_TRANSITIONS, type PlanState } from '../install/deployment/plan-states.ts'

export type RollbackState = 'pending' | 'finding_snapshots' | 'verifying_snapshots' | PlanState

/** The states of a rollback. Every path to `installing` passes `verifying_snapshots`. */
export const ROLLBACK_TRANSITIONS: Transitions<RollbackState> = {
  pending: ['finding_snapshots'],
  finding_snapshots: ['verifying_snapshots', 'failed'],
  verifying_snapshots: ['loading_plan', 'failed'],
  ...PLAN_TRANSITIONS,
}
