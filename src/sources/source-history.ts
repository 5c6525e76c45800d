import { ArtifactError } from '../core/errors.ts'
import { refuseDowngrade, replacedBytes } from '../core/trust/version-rules.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import type { SourceRecord } from '../install/host/installed/rows.ts'

/** A version that a source once supplied for a part of this project, installed or retained on this host. */
export interface SuppliedVersion {
  readonly version: string | null
  readonly source: SourceRecord
}

/** The history of a part's place on this host. */
export interface SourcePast {
  /** Undefined if this project has installed nothing there from a source. */
  readonly installed: SuppliedVersion | undefined
  readonly history: readonly SuppliedVersion[]
  /** True if this host has had exactly this content and replaced it, according to its records and audit log. */
  wasReplaced(source: SourceRecord): boolean
}

/** A version of a marketplace, as a hub serves it now. */
export interface OfferedVersion {
  readonly version: string
  /** The plugin or service, its marketplace, and the digest of its artifact. */
  readonly source: SourceRecord
}

/**
 * Throws ArtifactError `version_reused` for a version that this host has had from the same source with different bytes:
 * a published version must never change.
 */
export function refuseReused({ version, source }: OfferedVersion, history: readonly SuppliedVersion[]): void {
  const known = history.filter(had => had.source.from === source.from && isSameVersion(had.version ?? '', version))
  const [first] = known
  if (first === undefined || known.some(had => had.source.id === source.id)) return
  throw new ArtifactError(
    'version_reused',
    `${source.from} now has version ${version} with different bytes (sha256 ${source.id}) than this host received before (${first.source.id}): nothing was installed. Ask its publisher why; to accept them, have the project sealed with the sha256 of the part.`,
  )
}

/**
 * Throws DeploymentError `downgrade_refused` for a `latest` that is older than the version that the same source
 * supplied for this part, and for one whose bytes this host has had and replaced, under whatever name.
 */
export function refuseOlder({ version, source }: OfferedVersion, { installed, wasReplaced }: SourcePast): void {
  // Another plugin's version does not compare with this one's, and the signed manifest has chosen between the two.
  if (installed?.source.from === source.from) refuseDowngrade(version, { version: installed.version, isOurs: true })
  if (wasReplaced(source)) throw replacedBytes({ version, sha256: source.id }, installed)
}
