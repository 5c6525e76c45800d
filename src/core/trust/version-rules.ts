import { ArtifactError, DeploymentError } from '../errors.ts'
import { isOlderVersion, isSameVersion } from './versions.ts'

/** A version that is installed or retained on this host, and the digest of its artifact; each is null if unknown. */
export interface KnownVersion {
  readonly version: string | null
  readonly artifact_sha256: string | null
}

/** The installed part that a `latest` would replace. */
export interface InstalledState {
  /** Null if nothing is installed, or if the version of the installed part is unknown. */
  readonly version: string | null
  /** Whether this action installed the part from the same origin. In that case, its version must be comparable. */
  readonly isOurs: boolean
}

/** `latest` is the operator's input `version`, or the version of a source in a project's manifest. */
export type LatestChooser = 'operator' | 'manifest'

const LATEST_WORDS = {
  operator: {
    latest: 'A run with version: latest',
    remedy: "To install the hub's version anyway, name that version or set allow-downgrade: true.",
  },
  manifest: {
    latest: 'A source with the version latest',
    remedy:
      "To install the hub's version anyway, set allow-downgrade: true, or have the publisher name that version in the source and seal the project again.",
  },
} as const

/**
 * Throws DeploymentError `downgrade_refused` for a `latest` that is older than the installed version, or that cannot be
 * compared with a version that this action installed.
 */
export function refuseDowngrade(
  latest: string,
  { version, isOurs }: InstalledState,
  by: LatestChooser = 'operator',
): void {
  if (version === null) return
  const isOlder = isOlderVersion(latest, version)
  if (isOlder === false || (isOlder === undefined && !isOurs)) return
  const finding = isOlder ? 'which is newer' : 'and nothing says which of the two is newer'
  throw downgrade(`The hub's latest version is ${latest}, but this host runs ${version}, ${finding}`, by)
}

/** The version that this host runs now, and the time of its installation; each is null if the record lacks it. */
export interface PresentVersion {
  readonly version: string | null
  readonly installed_at?: string | null
}

/**
 * Returns a DeploymentError `downgrade_refused` for a `latest` whose bytes this host has had and replaced, whatever
 * version the hub calls them now. They may be the bytes of an older version.
 */
export function replacedBytes(
  { version, sha256 }: { readonly version: string | null; readonly sha256: string },
  present: PresentVersion | undefined,
  by: LatestChooser = 'operator',
): DeploymentError {
  const served = `the hub's latest version${version === null ? '' : `, ${version}`} (sha256 ${sha256})`
  return downgrade(
    `This host has already replaced ${served}${presentClause(present)}. ${LATEST_WORDS[by].latest} does not restore a replaced version`,
    by,
  )
}

function presentClause(present: PresentVersion | undefined): string {
  const { version = null, installed_at: since = null } = present ?? {}
  if (version === null) return ''
  return `, and now runs ${version}${since === null ? '' : ` (installed on ${since.slice(0, 10)})`}`
}

function downgrade(finding: string, by: LatestChooser): DeploymentError {
  return new DeploymentError('downgrade_refused', `${finding}: nothing was installed. ${LATEST_WORDS[by].remedy}`)
}

/** A version that the hub serves, and the digest of its artifact. */
export interface ServedVersion {
  readonly version: string
  readonly sha256: string
}

/** The bytes that the operator has named, and whether to deploy the installed version again. */
export interface AcceptedBytes {
  readonly artifactSha256: string | undefined
  readonly redeploy: boolean
}

/**
 * Throws ArtifactError `version_reused` for a version that this host knows with different bytes, because a published
 * version must never change. Accepts the new bytes only if the operator has pinned them and set `redeploy`. A pin alone
 * is not enough: it may come from a release gate, which knows what the hub serves now, but not what the hub served
 * before.
 */
export function refuseReusedVersion(
  { version, sha256 }: ServedVersion,
  knownVersions: readonly KnownVersion[],
  accepted: AcceptedBytes,
): void {
  if (accepted.redeploy && accepted.artifactSha256 === sha256) return
  const known = knownVersions.filter(
    row => row.version !== null && isSameVersion(row.version, version) && row.artifact_sha256 !== null,
  )
  const [first] = known
  if (first === undefined || known.some(row => row.artifact_sha256 === sha256)) return
  throw new ArtifactError(
    'version_reused',
    `The hub now serves version ${version} with different bytes (sha256 ${sha256}) than this host received before (${first.artifact_sha256}, according to .hub-deploy/installed.json): ` +
      'nothing was installed. Ask the publisher why, or restore the record if it is damaged; to accept the new bytes, set artifact-sha256 to their digest and redeploy to true.',
  )
}
