import type { ExtractionLimits } from '../../core/archive/archive-limits.ts'

/** Where an archive is extracted to, and how large it may become. */
export interface Extraction {
  /**
   * An existing, empty, private directory. What was written stays when the extraction throws: its caller removes it.
   */
  readonly target: string
  readonly limits: ExtractionLimits
  readonly signal?: AbortSignal | undefined
}
