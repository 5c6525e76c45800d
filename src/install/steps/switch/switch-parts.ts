import type { PlannedChange } from '../../transaction/changes/change.ts'
import type { PlannedMove } from '../../transaction/changes/move.ts'
import type { InstalledPart } from '../parts/part.ts'
import type { StepContext } from '../step-context.ts'
import type { StepResult } from '../step-entry.ts'
import type { PlannedSwitch, SwitchedPart } from './planned-switch.ts'
import type { PreparedPart } from './prepare-parts.ts'
import { planRemoval, stopRemoved } from './remove-part.ts'
import { planReplacement } from './replace-part.ts'
import { noteLeaving } from './replaced-tree.ts'

/** The parts that are removed and installed together. */
export interface Switched {
  readonly removed: readonly InstalledPart[]
  readonly prepared: readonly PreparedPart[]
}

type Reach = (part: SwitchedPart) => void
type MovesOf = (one: PlannedSwitch) => readonly PlannedMove[] | Promise<readonly PlannedMove[]>

/** The groups of moves, in their order. No move depends on another move in its group. */
const GROUPS: readonly MovesOf[] = [
  ({ snapshot }) => (snapshot === undefined ? [] : [snapshot.move]),
  one => one.kept(),
  one => one.into(),
]

/**
 * Switches parts together. Stops the services of removed parts, then compares and checks the trees that are removed or
 * replaced. After that, the function only moves: all old trees to the snapshots, then the kept paths into the new
 * trees, then all new trees into their places. If a part has no old tree, its kept paths come from the snapshot that
 * was left behind. Finally compares the old trees again, because other processes could change these trees until the
 * move. Returns the result for each part, except for the removed parts that were already gone. Calls `reach` with a
 * part when the work on that part begins. Throws DeploymentError `step_failed`, `unsafe_host` or `inconsistent`, the
 * errors from stopping a service, file system errors, or the signal's reason.
 */
export async function switchParts(
  context: StepContext,
  parts: Switched,
  reach: Reach = () => undefined,
): Promise<ReadonlyMap<SwitchedPart, StepResult>> {
  const planned = await planSwitches(context, parts, reach)
  for (const movesOf of GROUPS) {
    const owners = await ownersOf(planned, movesOf, reach)
    await context.transaction.apply([...owners.keys()], move => reach(owners.get(move) as SwitchedPart))
  }
  const results = new Map<SwitchedPart, StepResult>()
  for (const { part, finish } of planned) {
    reach(part)
    results.set(part, await finish())
  }
  return results
}

/** Returns the moves of a group, each with the part that the move belongs to. */
async function ownersOf(
  planned: readonly PlannedSwitch[],
  movesOf: MovesOf,
  reach: Reach,
): Promise<ReadonlyMap<PlannedChange, SwitchedPart>> {
  const owners = new Map<PlannedChange, SwitchedPart>()
  for (const one of planned) {
    reach(one.part)
    for (const move of await movesOf(one)) owners.set(move, one.part)
  }
  return owners
}

async function planSwitches(context: StepContext, { removed, prepared }: Switched, reach: Reach) {
  const leaving: InstalledPart[] = []
  for (const part of removed) {
    reach(part)
    if (await stopRemoved(context, part)) leaving.push(part)
  }
  for (const part of [...leaving, ...prepared.map(({ part }) => part)]) {
    reach(part)
    await noteLeaving(context, 'previous' in part ? part.previous.place : part)
  }
  context.deployment.tools.signal.throwIfAborted()
  const planned: PlannedSwitch[] = []
  for (const part of leaving) {
    reach(part)
    planned.push(await planRemoval(context, part))
  }
  for (const one of prepared) {
    reach(one.part)
    planned.push(await planReplacement(context, one))
  }
  return planned
}
