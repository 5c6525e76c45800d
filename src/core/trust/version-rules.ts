import { ArtifactError, DeploymentError } from '../errors.ts'
import { isOlderVersion, isSameVersion } from './versions.ts'

/** A version that this host has or retains, and the bytes that it got for it; null where nobody knows. */
export interface KnownVersion {
  readonly version: string | null
  readonly artifact_sha256: string | null
}

/** Refuses to let `latest` go back: DeploymentError `downgrade_refused` when it is older than what is installed. */
export function refuseDowngrade(latest: string, installed: string | null): void {
  if (installed === null || isOlderVersion(latest, installed) !== true) return
  throw new DeploymentError(
    'downgrade_refused',
    `The hub's latest version is ${latest}, this host runs ${installed}, which is newer: nothing was installed. ` +
      'Set allow-downgrade: true, or name the version, to go back on purpose.',
  )
}

/**
 * Refuses a version that this host knows with other bytes, unless the operator has pinned these: ArtifactError
 * `version_reused`. A published version is expected never to change.
 */
export function refuseReusedVersion(
  version: string,
  sha256: string,
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
    `The hub serves version ${version} with other bytes (sha256 ${sha256}) than this host got before (${first.artifact_sha256}): ` +
      'nothing was installed. Ask the publisher why; to take these bytes, set artifact-sha256 to their digest.',
  )
}
