import { ArtifactError } from '../core/errors.ts'
import { refuseDowngrade, replacedBytes } from '../core/trust/version-rules.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import type { SourceRecord } from '../install/host/installed/rows.ts'

/** A version of a part that came from a source, and that this host has installed or retained. */
export interface SuppliedVersion {
  readonly version: string | null
  readonly source: SourceRecord
}

/** The history of a part's place on this host. */
export interface SourcePast {
  /** Undefined if this project has installed nothing there from a source. */
  readonly installed: SuppliedVersion | undefined
  readonly history: readonly SuppliedVersion[]
  /** True if exactly this content was installed and later replaced, according to the host's records and audit log. */
  wasReplaced(source: SourceRecord): boolean
}

/** A version of a plugin or service, as a marketplace serves it now. */
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
    `${source.from} now has version ${version} with different bytes (sha256 ${source.id}) than this host received before (${first.source.id}): nothing was installed. Ask its publisher why; to accept the new bytes, have the project sealed with the sha256 of the part.`,
  )
}

/**
 * Throws DeploymentError `downgrade_refused` for a `latest` that is older than the installed version from the same
 * source or cannot be compared with it. Throws the same error for a `latest` whose bytes this host has had and
 * replaced, whatever version the hub now gives them.
 */
export function refuseOlder({ version, source }: OfferedVersion, { installed, wasReplaced }: SourcePast): void {
  // Versions of different plugins cannot be compared, and the signed manifest has chosen between the plugins.
  if (installed?.source.from === source.from)
    refuseDowngrade(version, { version: installed.version, isOurs: true }, 'manifest')
  if (wasReplaced(source)) throw replacedBytes({ version, sha256: source.id }, installed, 'manifest')
}
