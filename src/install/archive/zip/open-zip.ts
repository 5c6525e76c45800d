import type { ExtractionRules } from '../../../core/archive/archive-policy.ts'
import type { TimeSlice } from '../../files/time-slice.ts'
import type { ReadWindow } from '../read-window.ts'
import type { ZipEntries } from './zip-entries.ts'

/** A ZIP that is being read. */
export interface OpenZip {
  readonly window: ReadWindow
  /** The rules that the content must respect. */
  readonly rules: ExtractionRules
  /** The time slice that all work on the ZIP shares. */
  readonly slice: TimeSlice
}

/** A ZIP whose entries have all been located. */
export interface LocatedZip {
  readonly window: ReadWindow
  readonly entries: ZipEntries
}
