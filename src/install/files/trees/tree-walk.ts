import { lstatSync, promises, type Stats } from 'node:fs'
import { join } from 'node:path'
import { comparePaths } from '../../../core/trust/tree-digest.ts'

export type TreeEntry =
  | { type: 'file'; path: string; size: number; mode: number }
  | { type: 'symlink'; path: string; target: string }
  | { type: 'other'; path: string }

/**
 * Returns every file, symlink and special file below `root` (directories are implied), with paths relative to `root`,
 * ordered by path components. Leaves out the paths in `skip`. Follows no symlink below `root`. Returns an empty list if
 * `root` is not a directory.
 */
export async function walkTree(root: string, skip: ReadonlySet<string> = new Set()): Promise<TreeEntry[]> {
  const found: TreeEntry[] = []
  const pending = ['']
  for (let directory = pending.pop(); directory !== undefined; directory = pending.pop()) {
    for (const entry of await listDirectory(join(root, directory))) {
      const path = directory === '' ? entry.name : `${directory}/${entry.name}`
      if (skip.has(path)) continue
      if (entry.isDirectory()) pending.push(path)
      else found.push(...(await describe(root, path)))
    }
  }
  return found.sort((a, b) => comparePaths(a.path, b.path))
}

/** True if anything is at the path, including a dangling symlink. */
export function pathExistsSync(path: string): boolean {
  return lstatIfPresentSync(path) !== undefined
}

/** Returns the result of lstat, or undefined if nothing is at the path. */
export function lstatIfPresentSync(path: string): Stats | undefined {
  try {
    return lstatSync(path)
  } catch (error) {
    if (isAbsent(error)) return undefined
    throw error
  }
}

/** True if a system error says that nothing is at the path. */
export function isAbsent(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR')
}

async function listDirectory(path: string) {
  try {
    return await promises.readdir(path, { withFileTypes: true })
  } catch (error) {
    if (isAbsent(error)) return []
    throw error
  }
}

/** Returns an empty list if another process has just removed the item. */
async function describe(root: string, path: string): Promise<TreeEntry[]> {
  try {
    const stat = await promises.lstat(join(root, path))
    if (stat.isSymbolicLink()) return [{ type: 'symlink', path, target: await promises.readlink(join(root, path)) }]
    const entry = { type: 'file', path, size: stat.size, mode: stat.mode & 0o7777 } as const
    return [stat.isFile() ? entry : { type: 'other', path }]
  } catch (error) {
    if (isAbsent(error)) return []
    throw error
  }
}
