import type { Transitions } from '../core/state-machine.ts'

export type DeployState =
  | 'pending'
  | 'fetching'
  | 'verifying_signature'
  | 'extracting'
  | 'loading_plan'
  | 'resolving_sequence'
  | 'installing'
  | 'healthchecking'
  | 'succeeded'
  | 'failed'
  | 'rolled_back'

/** The marketplace flow. No way leads to `installing` that does not pass `verifying_signature`. */
export const MARKETPLACE_TRANSITIONS: Transitions<DeployState> = {
  pending: ['fetching'],
  fetching: ['verifying_signature', 'failed'],
  verifying_signature: ['extracting', 'failed'],
  extracting: ['loading_plan', 'failed'],
  loading_plan: ['resolving_sequence', 'failed'],
  resolving_sequence: ['installing', 'failed'],
  installing: ['healthchecking', 'failed', 'rolled_back'],
  healthchecking: ['succeeded', 'failed', 'rolled_back'],
  succeeded: [],
  failed: [],
  rolled_back: [],
}

/** A check of what is installed. No way leads to `installing`. */
export const CHECK_TRANSITIONS: Transitions<DeployState> = {
  pending: ['loading_plan'],
  loading_plan: ['healthchecking', 'failed'],
  healthchecking: ['succeeded', 'failed'],
  succeeded: [],
  failed: [],
  fetching: [],
  verifying_signature: [],
  extracting: [],
  resolving_sequence: [],
  installing: [],
  rolled_back: [],
}
