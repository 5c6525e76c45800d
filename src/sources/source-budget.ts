import { monotonicMs } from '../core/monotonic.ts'
import type { SourceRequest } from './source-request.ts'

/** The limits for fetching parts. */
export type SourceLimits = Pick<SourceRequest, 'downloadTimeoutMs' | 'maxArtifactBytes' | 'extraction'>

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
