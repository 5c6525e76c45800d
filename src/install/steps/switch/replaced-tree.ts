import { toHostError } from '../../files/system-errors.ts'
import { findInstalled, readInstalled } from '../../host/installed/host-record.ts'
import { installPath, type Place, placePath } from '../../host/layout.ts'
import { isModified, isSameDifference } from '../../host/trees/drift-check.ts'
import { noteDrift } from '../../host/trees/drift-note.ts'
import { describeTree } from '../../host/trees/modified-tree.ts'
import { readTreeRecord } from '../../host/trees/record/read-tree-record.ts'
import type { TreeIdentity } from '../../host/trees/record/tree-identity.ts'
import { writeTreeRecord } from '../../host/trees/record/write-tree-record.ts'
import type { TreeDifference } from '../../host/trees/tree-comparison.ts'
import { recordDrift } from '../parts/report-drift.ts'
import type { StepContext } from '../step-context.ts'

type Replacing = Pick<StepContext, 'deployment' | 'stagingFolder' | 'order'>

/**
 * Before an installed tree is moved away, notes and reports how the tree differs from what was installed, in case the
 * run is killed before `identifyReplaced`. Throws only the reason for a cancellation, and file system errors.
 */
export async function noteLeaving(context: Replacing, place: Place): Promise<void> {
  const { deployment } = context
  const drift = await deployment.drift.recent(place)
  await noteDifference(context, { place, root: installPath(deployment.layout, place) }, drift)
}

/**
 * Compares a tree again after it was moved to `root`, because other processes could write to the tree until then. Notes
 * and reports how the tree differs from what was installed. If the tree differs, records it as it is, and returns its
 * identity; otherwise returns undefined. The identity has no tree digest if the tree is not a directory. The identity
 * also has no tree digest, after a warning, if the tree cannot be read, has too many unrecorded bytes, or was not
 * compared although this action installed it. Throws only the reason for a cancellation, and file system errors.
 */
export async function identifyReplaced(
  context: Replacing,
  place: Place,
  root: string,
): Promise<TreeIdentity | undefined> {
  const { layout, keepPaths, tools, drift: check } = context.deployment
  const before = await check.of(place)
  // Without a snapshot, the tree is removed later: a difference that is not found now is never found.
  const drift = await check.moved(place, { root, isKept: context.order.snapshot })
  if (!isSameDifference(before, drift)) await noteDifference(context, { place, root }, drift)
  const identity = findInstalled(readInstalled(layout), place)
  if (drift === undefined && identity !== undefined) {
    tools.log.warning(
      `${placePath(place)} was not compared with what was installed, so its snapshot counts as modified on this host.`,
    )
    return { tree_digest: null }
  }
  if (!isModified(drift)) return undefined
  if (drift.instead !== undefined) return { tree_digest: null }
  try {
    const record = (identity && readTreeRecord(layout, identity)) ?? []
    const items = await describeTree({ root, keepPaths }, record, tools.signal)
    if (items !== undefined) return await writeTreeRecord(layout, items, tools.signal)
    tools.log.warning(
      `The snapshot of ${placePath(place)} has no record of its files, because too many bytes were added or changed.`,
    )
  } catch (error) {
    tools.signal.throwIfAborted()
    tools.log.warning(
      `The snapshot of ${placePath(place)} has no record of its files. ${toHostError(error, 'recording these files').message}`,
    )
  }
  return { tree_digest: null }
}

async function noteDifference(
  { deployment, stagingFolder }: Replacing,
  { place, root }: { readonly place: Place; readonly root: string },
  drift: TreeDifference | undefined,
): Promise<void> {
  await recordDrift(deployment, [place])
  if (drift !== undefined) await noteDrift(stagingFolder, { shelf: place.shelf, id: place.id, root }, drift)
}
