import type { PlannedMove } from '../../transaction/changes/move.ts'
import type { InstalledPart, NewPart, ReturningPart } from '../parts/part.ts'
import type { StepResult } from '../step-entry.ts'
import type { NextSnapshot } from './next-snapshot.ts'

/** A part that is removed or takes its place. */
export type SwitchedPart = InstalledPart | NewPart | ReturningPart

/** The switch of one part, by moves only: all slow work is already done. */
export interface PlannedSwitch {
  readonly part: SwitchedPart
  /** The snapshot that the old tree becomes, if there is an old tree. */
  readonly snapshot: NextSnapshot | undefined
  /**
   * Plans the moves from the snapshot into the new tree. Makes room for paths that appeared before the old tree was
   * moved.
   */
  kept(): Promise<readonly PlannedMove[]>
  /** Plans the moves of the new tree into its place, and of the settings that go with it. */
  into(): readonly PlannedMove[]
  /** Notes, logs and returns what was done. */
  finish(): Promise<StepResult>
}
