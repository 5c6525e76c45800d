import { dirname, join, relative } from 'node:path'
import { makeOpenDirectorySync, syncDirectory } from '../../files/durable-files.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { dropShipped, findKeptPaths } from '../../host/keep-paths.ts'
import { placePath } from '../../host/layout.ts'
import { requireMovableTree } from '../../host/switchable.ts'
import { justAppeared, type PlannedMove } from '../../transaction/changes/move.ts'
import type { Deployment } from '../../transaction/context.ts'
import type { NewPart, ReturningPart } from '../parts/part.ts'
import type { StepContext } from '../step-context.ts'

/**
 * Makes room in a staged tree for the kept paths of the tree `keeper`, and returns these paths. Removes the artifact's
 * own files at these paths. A snapshot's own files at these paths were moved away earlier, and are never removed.
 */
export async function prepareKeptPaths(
  { deployment }: StepContext,
  part: NewPart | ReturningPart,
  keeper: string,
): Promise<string[]> {
  const { layout, keepPaths } = deployment
  const tree = { root: keeper, keepPaths }
  if (keeper === part.leftBehind) requireMovableTree(layout, tree)
  const kept = findKeptPaths(tree, part.staged)
  if (part.recorded === undefined) await drop(deployment, part.staged, kept)
  else requireAbsent(part, kept)
  for (const path of kept) await makeParents(part.staged, path)
  return kept
}

async function drop({ tools }: Deployment, staged: string, kept: readonly string[]): Promise<void> {
  for (const path of await dropShipped(staged, kept)) {
    tools.log.notice(`The artifact contains ${path}, which keep-paths names: the host's own copy stays.`)
  }
}

/**
 * Refuses a staged snapshot that still contains one of these paths: the installed version may have created that path
 * only after the snapshot's copies were moved away.
 */
function requireAbsent(part: ReturningPart, kept: readonly string[]): void {
  const late = kept.find(path => pathExistsSync(join(part.staged, path)))
  if (late !== undefined) throw justAppeared(`${placePath(part)}/${late}`)
}

/** Creates a path's parent directories durably, because some of them are created after the sync of the tree. */
async function makeParents(staged: string, path: string): Promise<void> {
  const parts = path.split('/').slice(0, -1)
  for (let depth = 1; depth <= parts.length; depth++) {
    const parent = join(staged, ...parts.slice(0, depth))
    if (pathExistsSync(parent)) continue
    makeOpenDirectorySync(parent)
    await syncDirectory(dirname(parent))
  }
}

/** Plans the moves of kept paths from one tree into another. `from` and `to` are the absolute paths of the trees. */
export function keptMoves(
  { layout: { root } }: Deployment,
  { from, to }: { readonly from: string; readonly to: string },
  kept: readonly string[],
): PlannedMove[] {
  return kept.map(path => ({
    type: 'move',
    from: relative(root, join(from, path)),
    to: relative(root, join(to, path)),
  }))
}
