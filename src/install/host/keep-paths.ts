import { join } from 'node:path'
import { DeploymentError } from '../../core/errors.ts'
import { removeTree } from '../files/remove-tree.ts'
import { lstatIfPresentSync, pathExistsSync } from '../files/tree-walk.ts'

/**
 * Which of the keep-paths the installed directory really holds, and that its replacement can take: the directory and the
 * parents are real directories on both sides. One inside another goes with it and is not named twice. Throws DeploymentError `step_failed` when one of them is a symlink or a file.
 */
export function findKeptPaths(installed: string, staged: string, keepPaths: readonly string[]): string[] {
  const kept = findMovablePaths(installed, keepPaths)
  for (const path of kept) requireRealParents(staged, path)
  return kept
}

/** The same of the installed directory alone. */
export function findMovablePaths(installed: string, keepPaths: readonly string[]): string[] {
  const kept = presentPaths(installed, keepPaths)
  for (const path of kept) requireRealParents(installed, path)
  return kept
}

/** Which of these paths a directory holds; one inside another is not named twice. */
export function presentPaths(root: string, paths: readonly string[]): string[] {
  return outermost(paths).filter(path => pathExistsSync(join(root, path)))
}

/** Removes from a staged tree what the host keeps its own of. Returns the names that the artifact had shipped. */
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
    const parent = join(root, ...parts.slice(0, depth))
    const stat = lstatIfPresentSync(parent)
    if (stat === undefined) return
    if (!stat.isDirectory()) {
      throw new DeploymentError(
        'step_failed',
        `keep-paths names ${path}, but ${parent} is not a directory, so ${path} cannot be carried over: keep that path itself.`,
      )
    }
  }
}
