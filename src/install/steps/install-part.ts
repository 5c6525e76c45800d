import { dirname, relative } from 'node:path'
import { awaitAll } from '../files/await-all.ts'
import { syncTree } from '../files/durable-files.ts'
import { hearSignals } from '../files/time-slice.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { installPath, placeName } from '../host/layout.ts'
import { addedInWords } from '../host/trees/drift-check.ts'
import { stagedItems, type TreeIdentity, writeTreeRecord } from '../host/trees/tree-record.ts'
import { carryOver, prepareKeptPaths } from './kept-paths.ts'
import { moveToSnapshot } from './move-to-snapshot.ts'
import type { IntactPart, NewPart, ReturningPart } from './part.ts'
import { noteReplaced } from './replaced-tree.ts'
import type { StepEnd } from './run-steps.ts'
import type { StepContext } from './step-context.ts'

/** Keeps a part that is intact in its place. */
export async function keepPart({ deployment, results }: StepContext, part: IntactPart): Promise<StepEnd> {
  results.set(placeName(part), { tree: part.intact })
  const { added } = (await deployment.drift.of(part)) ?? { added: [] }
  const more = added.length === 0 ? '' : `; ${addedInWords(added.length)}`
  deployment.tools.log.info(`${placeName(part)} is already ${part.version} with these files${more}. It stays as it is.`)
  return 'unchanged'
}

/**
 * Installs a staged part: makes its tree and record durable, moves the old tree to the snapshots, moves the kept paths
 * into the new one (where there is no old tree, from the snapshot that was left behind), and moves the new tree into
 * place. The tree of a part that returns is durable and recorded.
 */
export async function installPart(context: StepContext, part: NewPart | ReturningPart): Promise<StepEnd> {
  const { layout, tools } = context.deployment
  const path = installPath(layout, part)
  const isThere = pathExistsSync(path)
  const keeper = isThere ? path : part.leftBehind
  const kept = keeper === undefined ? [] : await prepareKeptPaths(context, part, keeper)
  const [modified, recorded] = await awaitAll(
    noteReplaced(context, part),
    recordTree(context, part),
    part.recorded ?? syncTree(part.staged, tools.signal),
  )
  tools.signal.throwIfAborted()
  if (!pathExistsSync(dirname(path))) await context.transaction.apply({ type: 'make_directory', path: part.shelf })
  const snapshot = pathExistsSync(path) ? await moveToSnapshot(context, part, part.previous.version) : undefined
  context.results.set(placeName(part), { tree: recorded, snapshot: snapshot?.name, modified })
  const from = isThere ? snapshot?.path : part.leftBehind
  // The old version may have made some only now.
  const late = snapshot === undefined ? [] : await prepareKeptPaths(context, part, snapshot.path)
  await carryOver(context, part, { from, kept: [...new Set([...kept, ...late])] })
  await context.transaction.apply({ type: 'move', from: relative(layout.root, part.staged), to: placeName(part) })
  if (modified !== undefined && part.previous.installed?.artifact_sha256 === part.artifactSha256)
    tools.log.notice(`${path} was repaired.`)
  tools.log.info(`${path} is now ${part.version} (tree digest ${recorded.tree_digest}).`)
  return 'done'
}

/** While the sync runs, which takes its time in a process of its own. */
async function recordTree({ deployment }: StepContext, part: NewPart | ReturningPart): Promise<TreeIdentity> {
  if (part.recorded !== undefined) return part.recorded
  await hearSignals()
  const { layout, keepPaths, tools } = deployment
  return await writeTreeRecord(layout, stagedItems(part, keepPaths), tools.signal)
}
