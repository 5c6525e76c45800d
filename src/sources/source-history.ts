import { ArtifactError } from '../core/errors.ts'
import { refuseDowngrade, replacedBytes } from '../core/trust/version-rules.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import type { SourceRecord } from '../install/host/installed/rows.ts'

/** What a source once supplied for a part of this project, installed or retained on this host. */
export interface SuppliedVersion {
  readonly version: string | null
  readonly source: SourceRecord
}

/** What this host knows of a part's place. */
export interface SourcePast {
  /** Undefined where this project has installed nothing there that came from a source. */
  readonly installed: SuppliedVersion | undefined
  readonly history: readonly SuppliedVersion[]
  /** Whether this host has had just that, by its records and audit log, and replaced it. */
  wasReplaced(source: SourceRecord): boolean
}

/** A version of a marketplace, as a hub serves it now. */
export interface OfferedVersion {
  readonly version: string
  /** Which plugin or service of which marketplace, and the digest of its artifact. */
  readonly source: SourceRecord
}

/**
 * Refuses a version that this host knows from the same source with other bytes: ArtifactError `version_reused`. A
 * published version must never change.
 */
export function refuseReused({ version, source }: OfferedVersion, history: readonly SuppliedVersion[]): void {
  const known = history.filter(had => had.source.from === source.from && isSameVersion(had.version ?? '', version))
  const [first] = known
  if (first === undefined || known.some(had => had.source.id === source.id)) return
  throw new ArtifactError(
    'version_reused',
    `${source.from} now has version ${version} with other bytes (sha256 ${source.id}) than this host received before (${first.source.id}): nothing was installed. Ask its publisher why; to accept them, have the project sealed with the sha256 of the part.`,
  )
}

/**
 * Refuses a `latest` that is older than what the same source has supplied for this part, and one whose bytes this host
 * has had and replaced, whatever they are called now: DeploymentError `downgrade_refused`.
 */
export function refuseOlder({ version, source }: OfferedVersion, { installed, wasReplaced }: SourcePast): void {
  // Another plugin's version says nothing about this one's, and the signed manifest has chosen between the two.
  if (installed?.source.from === source.from) refuseDowngrade(version, { version: installed.version, isOurs: true })
  if (wasReplaced(source)) throw replacedBytes({ version, sha256: source.id }, installed)
}
