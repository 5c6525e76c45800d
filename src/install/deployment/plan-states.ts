import type { Transitions } from '../../core/state-machine.ts'
import type { TerminalState } from './deployment.ts'

/** The states of a flow that runs an operator's plan, from loading the plan to the end. */
export type PlanState = 'loading_plan' | 'resolving_sequence' | 'installing' | 'healthchecking' | TerminalState

/** Only a run that has begun to install can be rolled back. */
export const PLAN_TRANSITIONS: Transitions<PlanState> = {
  loading_plan: ['resolving_sequence', 'failed'],
  resolving_sequence: ['installing', 'failed'],
  installing: ['healthchecking', 'failed', 'rolled_back'],
  healthchecking: ['succeeded', 'failed', 'rolled_back'],
  succeeded: [],
  failed: [],
  rolled_back: [],
}
