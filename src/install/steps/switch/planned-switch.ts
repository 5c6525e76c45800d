import type { PlannedMove } from '../../transaction/changes/move.ts'
import type { InstalledPart, NewPart, ReturningPart } from '../parts/part.ts'
import type { StepResult } from '../step-entry.ts'
import type { NextSnapshot } from './next-snapshot.ts'

/** A part that is removed or installed. */
export type SwitchedPart = InstalledPart | NewPart | ReturningPart

/** The switch of one part, by moves only: all slow work is already done. */
export interface PlannedSwitch {
  readonly part: SwitchedPart
  /** The snapshot that the old tree becomes, if there is an old tree. */
  readonly snapshot: NextSnapshot | undefined
  /**
   * Plans the moves of kept paths from the snapshot into the new tree. Makes room there for kept paths that appeared
   * just before the old tree was moved.
   */
  kept(): Promise<readonly PlannedMove[]>
  /** Plans the moves of the new tree into its place, and of the settings that move with the part. */
  into(): readonly PlannedMove[]
  /** Records and logs the switch once its moves are made. Returns the result of the part's step. */
  finish(): Promise<StepResult>
}
