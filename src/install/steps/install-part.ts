import { join, relative } from 'node:path'
import { awaitAll } from '../files/await-all.ts'
import { syncTree } from '../files/durable-files.ts'
import { hearSignals, TimeSlice } from '../files/time-slice.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { installPath, isSamePlace, placeName, placePath, settingsPath } from '../host/layout.ts'
import { formerPlace } from '../host/previous-install.ts'
import { addedInWords, isModified } from '../host/trees/drift-check.ts'
import { stagedItems } from '../host/trees/record/extracted-items.ts'
import { openTreeRecord, readTreeRecord } from '../host/trees/record/read-tree-record.ts'
import type { TreeIdentity } from '../host/trees/record/tree-identity.ts'
import { writeTreeRecord } from '../host/trees/record/write-tree-record.ts'
import { TreeChange } from '../host/trees/tree-change.ts'
import { carryOver, prepareKeptPaths } from './kept-paths.ts'
import { moveToSnapshot } from './move-to-snapshot.ts'
import type { IntactPart, NewPart, ReturningPart } from './part.ts'
import { noteReplaced } from './replaced-tree.ts'
import type { StepResult } from './run-steps.ts'
import type { StepContext } from './step-context.ts'

/** Keeps a part that is intact in its place. */
export async function keepPart({ deployment, results }: StepContext, part: IntactPart): Promise<StepResult> {
  results.set(placeName(part), { tree: part.intact })
  const { added } = (await deployment.drift.of(part)) ?? { added: [] }
  const more = added.length === 0 ? '' : `; ${addedInWords(added.length)}`
  return {
    status: 'unchanged',
    did: 'as it was',
    story: `${placePath(part)} is already ${part.version} with these files${more}`,
  }
}

/**
 * Installs a staged part: makes its tree and record durable, moves the old tree to the snapshots, moves the kept paths
 * into the new one (where there is no old tree, from the snapshot that was left behind), and moves the new tree into
 * place. The tree of a part that returns is durable and recorded.
 */
export async function installPart(context: StepContext, part: NewPart | ReturningPart): Promise<StepResult> {
  const { layout, tools } = context.deployment
  const [path, oldPath] = [installPath(layout, part), installPath(layout, part.previous.place)]
  const isThere = pathExistsSync(oldPath)
  const keeper = isThere ? oldPath : part.leftBehind
  const kept = keeper === undefined ? [] : await prepareKeptPaths(context, part, keeper)
  const change = new TreeChange(layout, isThere ? part.previous.installed : undefined)
  const [, recorded] = await awaitAll(
    part.recorded ?? syncTree(part.staged, tools.signal),
    recordTree(context, part, change),
    // Not once more afterwards, unless the sync takes long.
    context.deployment.drift.again(part.previous.place),
  )
  const modified = await noteReplaced(context, part.previous.place)
  tools.signal.throwIfAborted()
  await makeDirectory(context, part.directory)
  const { place, version } = part.previous
  const snapshot = pathExistsSync(oldPath) ? await moveToSnapshot(context, place, version) : undefined
  context.results.set(placeName(part), { tree: recorded, snapshot: snapshot?.name, modified })
  const from = isThere ? snapshot?.path : part.leftBehind
  // The old version may have made some only now.
  const late = snapshot === undefined ? [] : await prepareKeptPaths(context, part, snapshot.path)
  await carryOver(context, part, { from, kept: [...new Set([...kept, ...late])] })
  await context.transaction.apply({ type: 'move', from: relative(layout.root, part.staged), to: placePath(part) })
  await moveSettings(context, part)
  if (modified !== undefined && part.previous.installed?.artifact_sha256 === part.artifactSha256)
    tools.log.notice(`${path} was repaired.`)
  tools.log.info(`${path} has the tree digest ${recorded.tree_digest}.`)
  await countEdited(context, part, { change, recorded, isThere })
  const did = change.inWords()
  return { status: 'done', did, story: `${placePath(part)} is now ${part.version}, ${did}` }
}

/** What was edited on this host was replaced too. */
async function countEdited(
  { deployment }: StepContext,
  { previous }: NewPart | ReturningPart,
  { change, recorded, isThere }: { change: TreeChange; recorded: TreeIdentity; isThere: boolean },
): Promise<void> {
  const drift = await deployment.drift.of(previous.place)
  if (!isThere || previous.installed === undefined || !isModified(drift)) return
  try {
    const before = openTreeRecord(deployment.layout, previous.installed)
    const after = openTreeRecord(deployment.layout, recorded)
    if (before !== undefined && after !== undefined) change.correct(drift, before, after)
  } catch {
    // A count is not worth a deployment.
  }
}

/** With all above it, each of which is removed again if it stays empty. */
async function makeDirectory({ deployment, transaction }: StepContext, directory: string): Promise<void> {
  const parts = directory.split('/')
  for (let depth = 1; depth <= parts.length; depth++) {
    const path = parts.slice(0, depth).join('/')
    if (!pathExistsSync(join(deployment.layout.root, path))) await transaction.apply({ type: 'make_directory', path })
  }
}

/** The host's own settings of a part go with it to another directory, even if it was removed in between. */
async function moveSettings(context: StepContext, part: NewPart | ReturningPart): Promise<void> {
  const { deployment, transaction, order } = context
  const { layout, tools } = deployment
  const former = formerPlace(part.previous, order.origin)
  const [from, to] = [settingsPath(layout, former), settingsPath(layout, part)]
  if (isSamePlace(former, part)) return
  const { place, installed } = part.previous
  if (installed !== undefined)
    tools.log.notice(`${installPath(layout, place)} was installed before: it is ${installPath(layout, part)} now.`)
  if (!pathExistsSync(from)) return
  if (pathExistsSync(to))
    return tools.log.notice(`${from} stays, because ${to} exists: remove it when nothing needs it.`)
  await transaction.apply({ type: 'move', from: relative(layout.root, from), to: relative(layout.root, to) })
  tools.log.notice(`Its settings, ${from}, are ${to} now.`)
}

/** While the sync runs, which takes its time in a process of its own. */
async function recordTree(
  { deployment }: StepContext,
  part: NewPart | ReturningPart,
  change: TreeChange,
): Promise<TreeIdentity> {
  const { layout, keepPaths, tools } = deployment
  if (part.recorded !== undefined) {
    const slice = new TimeSlice(tools.signal)
    for (const _ of change.count(readTreeRecord(layout, part.recorded) ?? []))
      if (slice.isOver()) await slice.giveBack()
    return part.recorded
  }
  await hearSignals()
  return await writeTreeRecord(layout, change.count(stagedItems(part, keepPaths)), tools.signal)
}
