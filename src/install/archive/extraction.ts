import type { ExtractionLimits } from '../../core/archive/archive-limits.ts'

/** The target and the limits of an extraction. */
export interface Extraction {
  /** An existing, empty, private directory. If the extraction throws, the caller removes what was written. */
  readonly target: string
  readonly limits: ExtractionLimits
  readonly signal?: AbortSignal | undefined
}
