import type { Transitions } from '../core/state-machine.ts'

export type ProjectState =
  | 'pending'
  | 'authenticating'
  | 'requesting_artifact'
  | 'downloading'
  | 'verifying_signature'
  | 'obtaining_key'
  | 'decrypting'
  | 'extracting'
  | 'verifying_manifest'
  | 'validating_project'
  | 'resolving_sequence'
  | 'installing'
  | 'healthchecking'
  | 'notifying'
  | 'succeeded'
  | 'failed'
  | 'rolled_back'

/**
 * The states of the project flow. Every path to `obtaining_key` passes `verifying_signature`, and every path to
 * `installing` also passes `decrypting` and `verifying_manifest`.
 */
export const PROJECT_TRANSITIONS: Transitions<ProjectState> = {
  pending: ['authenticating'],
  authenticating: ['requesting_artifact', 'failed'],
  requesting_artifact: ['downloading', 'failed'],
  downloading: ['verifying_signature', 'failed'],
  verifying_signature: ['obtaining_key', 'failed'],
  obtaining_key: ['decrypting', 'failed'],
  decrypting: ['extracting', 'failed'],
  extracting: ['verifying_manifest', 'failed'],
  verifying_manifest: ['validating_project', 'failed'],
  validating_project: ['resolving_sequence', 'failed'],
  resolving_sequence: ['installing', 'failed'],
  installing: ['healthchecking', 'failed', 'rolled_back'],
  healthchecking: ['notifying', 'failed', 'rolled_back'],
  notifying: ['succeeded', 'failed', 'rolled_back'],
  succeeded: [],
  failed: [],
  rolled_back: [],
}
