import type { PlannedMove } from '../../transaction/changes/move.ts'
import type { InstalledPart, NewPart, ReturningPart } from '../parts/part.ts'
import type { StepResult } from '../step-entry.ts'
import type { NextSnapshot } from './next-snapshot.ts'

/** What is removed, or takes its place. */
export type SwitchedPart = InstalledPart | NewPart | ReturningPart

/** How one part is going to be switched, by nothing but moves; everything slow is done. */
export interface PlannedSwitch {
  readonly part: SwitchedPart
  /** Where the old tree goes, if there is one. */
  readonly snapshot: NextSnapshot | undefined
  /** What moves from there into the new tree. Makes room for what has appeared until the old tree was moved. */
  kept(): Promise<readonly PlannedMove[]>
  /** What moves the new tree into its place, and the settings that go with it. */
  into(): readonly PlannedMove[]
  /** Notes and logs what was done. */
  finish(): Promise<StepResult>
}
