import { join } from 'node:path'
import { DeploymentError } from '../../core/errors.ts'
import { removeTree } from '../files/trees/remove-tree.ts'
import { lstatIfPresentSync, pathExistsSync } from '../files/trees/tree-walk.ts'

/** A directory of this host, with the paths in it that belong to the host. */
export interface HostTree {
  readonly root: string
  readonly keepPaths: readonly string[]
}

/** Returns all paths in these lists, in order and without duplicates. */
export function uniteKeepPaths(...lists: readonly (readonly string[] | undefined)[]): string[] {
  return [...new Set(lists.flatMap(list => list ?? []))]
}

/**
 * Returns the keep-paths that exist in a tree, except those inside another keep-path. Throws DeploymentError
 * `step_failed` if one of these paths cannot be moved to the staged tree, because in one of the two trees, a parent of
 * the path is not a directory.
 */
export function findKeptPaths(tree: HostTree, staged: string): string[] {
  const kept = findMovablePaths(tree)
  for (const path of kept) requireRealParents(staged, path)
  return kept
}

/** Does the same as `findKeptPaths`, but checks only the tree itself. */
export function findMovablePaths({ root, keepPaths }: HostTree): string[] {
  const kept = presentPaths(root, keepPaths)
  for (const path of kept) requireRealParents(root, path)
  return kept
}

/** Returns the paths that exist in a directory, except any that is inside another of these paths. */
export function presentPaths(root: string, paths: readonly string[]): string[] {
  return outermost(paths).filter(path => pathExistsSync(join(root, path)))
}

/** Removes from a staged tree the paths that the host keeps. Returns those that the artifact had shipped. */
export async function dropShipped(staged: string, kept: readonly string[]): Promise<string[]> {
  const shipped: string[] = []
  for (const path of kept) {
    if (!pathExistsSync(join(staged, path))) continue
    await removeTree(join(staged, path))
    shipped.push(path)
  }
  return shipped
}

function outermost(paths: readonly string[]): string[] {
  const unique = [...new Set(paths)]
  return unique.filter(path => !unique.some(other => path.startsWith(`${other}/`)))
}

function requireRealParents(root: string, path: string): void {
  const parts = path.split('/').slice(0, -1)
  for (let depth = 0; depth <= parts.length; depth++) {
    const parent = parts.slice(0, depth).join('/')
    const stat = lstatIfPresentSync(join(root, parent))
    if (stat === undefined) return
    if (!stat.isDirectory()) throw unkeepable(root, { path, parent })
  }
}

function unkeepable(root: string, { path, parent }: { path: string; parent: string }): DeploymentError {
  const advice =
    parent === ''
      ? `${root} is not a directory. Replace it with a directory, or remove it.`
      : `its parent ${parent} is not a directory in ${root}. Add ${parent} to keep-paths.`
  return new DeploymentError('step_failed', `The kept path ${path} cannot be moved to another version: ${advice}`)
}
