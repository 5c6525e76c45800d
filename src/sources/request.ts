import type { ExtractionLimits } from '../core/archive/policy.ts'
import type { GitTokens, SlugKeys } from '../core/content/source.ts'
import { ArtifactError } from '../core/errors.ts'
import { monotonicMs } from '../core/log.ts'
import { isSameVersion, refuseDowngrade, replacedBytes } from '../core/trust/versions.ts'
import type { SourcedVersion, SourcePast, SourceRecord } from '../install/host/rows.ts'
import type { DeploymentTools } from '../install/run/deployment.ts'

/** The operator's inputs for parts that a project names but does not contain. */
export interface SourceInputs {
  /**
   * The base URL of the marketplace. The inputs for the marketplace are needed only if a project takes a part from
   * there.
   */
  readonly hubUrl: string | undefined
  /** The base URL of that marketplace's services; the default is `hubUrl`. */
  readonly servicesUrl?: string | undefined
  readonly apiKey: string | undefined
  /** Keys that take the place of `apiKey` for their slug, because a hub may bind a key to one plugin or service. */
  readonly apiKeys: SlugKeys
  readonly signingSecret: string | undefined
  readonly gitTokens: GitTokens
}

/** The same inputs, and the rules of the project's own request that also apply to its parts. */
export interface SourceRequest {
  readonly marketplace: Omit<SourceInputs, 'gitTokens'>
  readonly gitTokens: GitTokens
  /**
   * The hub of the project itself. A source may be at a loopback or link-local address, or at one of this host's own
   * addresses, only if the hub has the same address.
   */
  readonly hubUrl: string
  /** PEM. */
  readonly ca: string | undefined
  readonly allowDowngrade: boolean
  readonly downloadTimeoutMs: number
  readonly maxArtifactBytes: number
  readonly extraction: ExtractionLimits
}

export type SourceTools = Pick<DeploymentTools, 'wires' | 'log' | 'signal' | 'now' | 'runner'>

/** The limits for fetching parts. */
type SourceLimits = Pick<SourceRequest, 'downloadTimeoutMs' | 'maxArtifactBytes' | 'extraction'>

/** The cost of fetching a part. */
export interface SourceCost {
  /** The number of bytes that arrived. */
  readonly received: number
  readonly tree: {
    readonly bytes: number
    readonly files: readonly unknown[]
    readonly symlinks: readonly unknown[]
    readonly directories: readonly unknown[]
  }
}

/**
 * Applies the limits of one artifact to all sources of a run together: each part gets what the earlier parts have left.
 */
export class SourceBudget {
  readonly #limits: SourceLimits
  readonly #now: () => number
  #endsAt: number | undefined
  #received = 0
  #bytes = 0
  #entries = 0

  constructor(limits: SourceLimits, now: () => number = monotonicMs) {
    this.#limits = limits
    this.#now = now
  }

  /** The remaining limits. The time starts with the first call. */
  get left(): SourceLimits {
    const { downloadTimeoutMs, maxArtifactBytes, extraction } = this.#limits
    this.#endsAt ??= this.#now() + downloadTimeoutMs
    return {
      downloadTimeoutMs: Math.max(1, this.#endsAt - this.#now()),
      maxArtifactBytes: Math.max(0, maxArtifactBytes - this.#received),
      extraction: {
        maxExtractedBytes: Math.max(0, extraction.maxExtractedBytes - this.#bytes),
        maxEntries: Math.max(0, extraction.maxEntries - this.#entries),
      },
    }
  }

  spend({ received, tree: { bytes, files, symlinks, directories } }: SourceCost): void {
    this.#received += received
    this.#bytes += bytes
    this.#entries += files.length + symlinks.length + directories.length
  }
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
export function refuseReused({ version, source }: OfferedVersion, history: readonly SourcedVersion[]): void {
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
