import { awaitAll } from '../../files/await-all.ts'
import { syncTrees } from '../../files/durable-files.ts'
import { hearSignals, TimeSlice } from '../../files/time-slice.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { findKeptPaths } from '../../host/keep-paths.ts'
import { installPath } from '../../host/layout.ts'
import { stagedItems } from '../../host/trees/record/extracted-items.ts'
import { readTreeRecord } from '../../host/trees/record/read-tree-record.ts'
import type { TreeIdentity } from '../../host/trees/record/tree-identity.ts'
import { writeTreeRecord } from '../../host/trees/record/write-tree-record.ts'
import { TreeChange } from '../../host/trees/tree-change.ts'
import type { NewPart, ReturningPart } from '../parts/part.ts'
import type { StepContext } from '../step-context.ts'

/** A part whose tree is in the staging folder, durable and recorded. */
export interface PreparedPart {
  readonly part: NewPart | ReturningPart
  readonly recorded: TreeIdentity
  /** The differences from the version that was installed at the time of the preparation. */
  readonly change: TreeChange
  /** Whether anything was at the part's previous place at that time. */
  readonly wasThere: boolean
}

/** The parts to prepare, and those among them that are switched immediately afterwards. */
export interface Preparation {
  readonly parts: readonly (NewPart | ReturningPart)[]
  readonly next: ReadonlySet<NewPart | ReturningPart>
}

/**
 * Makes the trees of staged parts durable, with one sync if possible, and records them. Also checks the trees that are
 * replaced next against their records. Changes only the staging folder and the records. The tree of a returning part is
 * already durable and recorded. Calls `reach` with each part before the check that the part's kept paths can be carried
 * over.
 */
export async function prepareParts(
  context: StepContext,
  { parts, next }: Preparation,
  reach: (part: NewPart | ReturningPart) => void = () => undefined,
): Promise<readonly PreparedPart[]> {
  const { layout, keepPaths, tools } = context.deployment
  const found = parts.map(part => {
    reach(part)
    const path = installPath(layout, part.previous.place)
    const wasThere = pathExistsSync(path)
    const keeper = wasThere ? path : part.leftBehind
    // Refuse kept paths that cannot be carried over, before anything is touched.
    if (keeper !== undefined) findKeptPaths({ root: keeper, keepPaths }, part.staged)
    return { part, wasThere, change: new TreeChange(layout, wasThere ? part.previous.installed : undefined) }
  })
  if (parts[0] !== undefined) reach(parts[0])
  const [, recorded] = await awaitAll(
    syncNew(parts, tools.signal),
    recordEach(context, found),
    // The switch does not compare these trees again, unless the sync takes a long time.
    compareEach(context, next),
  )
  return found.map((prepared, index) => ({ ...prepared, recorded: recorded[index] as TreeIdentity }))
}

type Found = Omit<PreparedPart, 'recorded'>

/** Needs only one sync, because all staged trees are on the file system of the staging folder. */
async function syncNew(parts: Preparation['parts'], signal: AbortSignal): Promise<void> {
  const [first, ...others] = parts.filter(({ recorded }) => recorded === undefined)
  if (first !== undefined) await syncTrees([first.staged, ...others.map(({ staged }) => staged)], signal)
}

/**
 * Records the trees while the sync runs in a separate process. Starts all records before it awaits any, because the
 * syncs of the records may have to wait for that sync.
 */
async function recordEach(context: StepContext, parts: readonly Found[]): Promise<TreeIdentity[]> {
  const records: Promise<TreeIdentity>[] = []
  for (const part of parts) {
    await hearSignals()
    const record = recordTree(context, part)
    // All these promises are awaited below. Until then, a rejection must not count as unhandled.
    record.catch(() => undefined)
    records.push(record)
  }
  return await awaitAll(...records)
}

async function recordTree({ deployment }: StepContext, { part, change }: Found): Promise<TreeIdentity> {
  const { layout, keepPaths, tools } = deployment
  if (part.recorded === undefined)
    return await writeTreeRecord(layout, change.count(stagedItems(part, keepPaths)), tools.signal)
  const slice = new TimeSlice(tools.signal)
  for (const _ of change.count(readTreeRecord(layout, part.recorded) ?? [])) if (slice.isOver()) await slice.giveBack()
  return part.recorded
}

async function compareEach({ deployment }: StepContext, parts: Iterable<NewPart | ReturningPart>): Promise<void> {
  for (const { previous } of parts) await deployment.drift.again(previous.place)
}
