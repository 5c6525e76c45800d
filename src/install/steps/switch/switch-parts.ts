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

/** What is removed and what is installed at once. */
export interface Switched {
  readonly removed: readonly InstalledPart[]
  readonly prepared: readonly PreparedPart[]
}

type Reach = (part: SwitchedPart) => void
type MovesOf = (one: PlannedSwitch) => readonly PlannedMove[] | Promise<readonly PlannedMove[]>

/** In their order; none of a group depends on another one of it. */
const GROUPS: readonly MovesOf[] = [
  ({ snapshot }) => (snapshot === undefined ? [] : [snapshot.move]),
  one => one.kept(),
  one => one.into(),
]

/**
 * Switches parts together: stops the services of those that are removed, compares and checks what is replaced, and then
 * does nothing but moves. All old trees go to the snapshots, then the kept paths into the new trees (where there is no
 * old tree, from the snapshot that was left behind), then all new trees into their places. Only then compares the old
 * trees once more, which others could change until they were moved. Returns what was done, by the part; nothing of what
 * is gone already. Calls `reach` with each part that it begins to work on. Throws DeploymentError `step_failed` or
 * `unsafe_host`, what stopping a service throws, or what the disk says.
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

/** The moves of a group, each with the part whose tree it moves. */
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
