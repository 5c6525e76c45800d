import { ArtifactError, DeploymentError } from '../errors.ts'
import { isOlderVersion, isSameVersion } from './versions.ts'

/** A version that is installed or retained on this host, and the digest of its artifact; null where it is unknown. */
export interface KnownVersion {
  readonly version: string | null
  readonly artifact_sha256: string | null
}

/** Refuses a `latest` that is older than the installed version: DeploymentError `downgrade_refused`. */
export function refuseDowngrade(latest: string, installed: string | null): void {
  if (installed === null || isOlderVersion(latest, installed) !== true) return
  throw new DeploymentError(
    'downgrade_refused',
    `The hub's latest version is ${latest}, but this host runs ${installed}, which is newer: nothing was installed. ` +
      'To downgrade on purpose, set allow-downgrade: true or name the version.',
  )
}

/** A version that the hub serves, and the digest of its artifact. */
export interface ServedVersion {
  readonly version: string
  readonly sha256: string
}

/**
 * Refuses a version that this host knows with other bytes, unless the operator has pinned the new ones: ArtifactError
 * `version_reused`. A published version must never change.
 */
export function refuseReusedVersion(
  { version, sha256 }: ServedVersion,
  knownVersions: readonly KnownVersion[],
  pinnedSha256: string | undefined,
): void {
  if (pinnedSha256 === sha256) return
  const known = knownVersions.filter(
    row => row.version !== null && isSameVersion(row.version, version) && row.artifact_sha256 !== null,
  )
  const [first] = known
  if (first === undefined || known.some(row => row.artifact_sha256 === sha256)) return
  throw new ArtifactError(
    'version_reused',
    `The hub now serves version ${version} with other bytes (sha256 ${sha256}) than this host received before (${first.artifact_sha256}): ` +
      'nothing was installed. Ask the publisher why; to accept the new bytes, set artifact-sha256 to their digest.',
  )
}
