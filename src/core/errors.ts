/**
 * All error codes. They are stable: operators' workflows and dashboards compare against them. docs/errors.md says what
 * each means and what to do.
 */
export const ERROR_CODES = [
  'missing_input',
  'invalid_input',
  'invalid_plan',
  'invalid_host_config',
  'network',
  'timeout',
  'bad_response',
  'insecure_url',
  'not_found',
  'authentication_failed',
  'no_published_version',
  'artifact_unavailable',
  'missing_signature',
  'invalid_signature_format',
  'signature_mismatch',
  'digest_mismatch',
  'untrusted_signer',
  'decryption_failed',
  'invalid_archive',
  'unsafe_archive',
  'archive_too_large',
  'empty_artifact',
  'not_a_plugin',
  'invalid_manifest',
  'content_mismatch',
  'source_not_supported',
  'unpinned_source',
  'version_mismatch',
  'downgrade_refused',
  'version_reused',
  'disk_full',
  'host_not_writable',
  'unsafe_host',
  'locked',
  'step_failed',
  'step_timed_out',
  'unhealthy',
  'cancelled',
  'interrupted',
  'report_refused',
  'rollback_failed',
  'inconsistent',
  'place_taken',
  'unexpected_part',
  'fleet_out_of_sync',
  'drift_found',
  'no_snapshot',
  'snapshot_modified',
  'not_installed',
  'internal_error',
] as const

export type ErrorCode = (typeof ERROR_CODES)[number]

export interface ErrorOptions {
  cause?: unknown
  /** A remedy for this error that is more exact than the remedy for its code. */
  next?: string
}

/**
 * An error for the operator: a stable `code` and a message that says what happened, why, where, and what to do. The
 * subclasses below say whose side the cause is on.
 */
export class DeployError extends Error {
  override readonly name: string = 'DeployError'
  readonly code: ErrorCode
  readonly next: string | undefined

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined)
    this.code = code
    this.next = options.next
  }
}

/** An input, a plan or a host config is wrong or missing, or a URL is not secure. */
export class ConfigError extends DeployError {
  override readonly name: string = 'ConfigError'
}

/** The hub, or the server of a git source, did not accept our credentials. */
export class AuthenticationError extends DeployError {
  override readonly name: string = 'AuthenticationError'
}

/** An artifact, or another answer of a hub or git server, could not be fetched or must not be used. */
export class ArtifactError extends DeployError {
  override readonly name: string = 'ArtifactError'
}

/** The signature is missing, malformed, wrong or by another signer, or the artifact is not the pinned one. */
export class SignatureError extends ArtifactError {
  override readonly name: string = 'SignatureError'
}

/** The archive is damaged, too large or empty, or contains an entry that must not be extracted. */
export class ArchiveError extends ArtifactError {
  override readonly name: string = 'ArchiveError'
}

/**
 * The run was cancelled, or the state of this host or of the fleet stopped it: the disk, the lock, an installed
 * version, a step or the health. Also the error if the hub failed to authenticate the run or to accept its report.
 */
export class DeploymentError extends DeployError {
  override readonly name: string = 'DeploymentError'
}

/** The rollback failed: perhaps neither version is complete on the host. */
export class RollbackError extends DeploymentError {
  override readonly name: string = 'RollbackError'
}

/**
 * Puts the subject before the message of a DeployError, and returns the same error. Any other error stays as it is, and
 * so does `cancelled`, which concerns the whole run.
 */
export function withSubject(subject: string, error: unknown): unknown {
  if (error instanceof DeployError && error.code !== 'cancelled') error.message = `${subject}: ${error.message}`
  return error
}

/**
 * Returns a DeployError unchanged. Wraps any other error in an `internal_error` that quotes its message and has the
 * error as `cause`.
 */
export function toDeployError(error: unknown): DeployError {
  if (error instanceof DeployError) return error
  const message = error instanceof Error ? error.message : String(error)
  return new DeployError('internal_error', `Unexpected error: ${message}`, { cause: error })
}

/**
 * Node has no name for EDQUOT, a full quota: 122 on Linux, and 69 on macOS. No call of either system fails with the
 * number of the other.
 */
const FULL_QUOTA = /^Unknown system error -(?:122|69)$/

/** Returns an error's `code` if it is a string, such as a system error's errno code (`ENOSPC`); otherwise undefined. */
export function errnoOf(error: unknown): string | undefined {
  if (!(error instanceof Error && 'code' in error && typeof error.code === 'string')) return undefined
  return FULL_QUOTA.test(error.code) ? 'EDQUOT' : error.code
}
