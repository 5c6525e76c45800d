import type { Transitions } from '../core/state-machine.ts'

export type RollbackState =
  | 'pending'
  | 'finding_snapshots'
  | 'verifying_snapshots'
  | 'loading_plan'
  | 'resolving_sequence'
  | 'installing'
  | 'healthchecking'
  | 'succeeded'
  | 'failed'
  | 'rolled_back'

/** The flow of a rollback. No way leads to `installing` that does not pass `verifying_snapshots`. */
export const ROLLBACK_TRANSITIONS: Transitions<RollbackState> = {
  pending: ['finding_snapshots'],
  finding_snapshots: ['verifying_snapshots', 'failed'],
  verifying_snapshots: ['loading_plan', 'failed'],
  loading_plan: ['resolving_sequence', 'failed'],
  resolving_sequence: ['installing', 'failed'],
  installing: ['healthchecking', 'failed', 'rolled_back'],
  healthchecking: ['succeeded', 'failed', 'rolled_back'],
  succeeded: [],
  failed: [],
  rolled_back: [],
}
