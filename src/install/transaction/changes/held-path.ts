import { lstatSync, mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { syncDirectory } from '../../files/durable-files.ts'
import { type OpenDirectory, openDirectorySync } from '../../files/open-directory.ts'
import { isAbsent, lstatIfPresentSync } from '../../files/trees/tree-walk.ts'

/**
 * A path of a change. A path deep inside a tree is reached through its open folder, which no process that owns a
 * directory of the tree can replace with a symlink. The directories above a tree belong to this action or an operator.
 */
export interface HeldPath {
  /** Absolute, for messages and names. */
  readonly path: string
  /** For system calls. Leads nowhere if the folder is missing or is not a directory. */
  readonly at: string | Buffer
  /** The folder of the path, for system calls. */
  readonly folder: string
}

/** A system call finds nothing at, or below, an empty path. */
const LOST = { at: '', folder: '' }

/** The two ends of a move. */
export interface Ends<End> {
  readonly from: End
  readonly to: End
}

/** The two ends of a move, with their folders held open until `close` is called. */
export interface HeldEnds extends Ends<HeldPath> {
  close(): void
}

export function holdEnds(root: string, { from, to }: Ends<string>): HeldEnds {
  const open: OpenDirectory[] = []
  const close = (): void => {
    for (const directory of open) directory.close()
  }
  try {
    return { from: hold(root, from, open), to: hold(root, to, open), close }
  } catch (error) {
    close()
    throw error
  }
}

/** Opens the two ends of a move, passes them to `act`, and closes the ends. */
export function withEnds<Result>(root: string, paths: Ends<string>, act: (ends: HeldEnds) => Result): Result {
  const ends = holdEnds(root, paths)
  try {
    return act(ends)
  } finally {
    ends.close()
  }
}

/** Returns the inode at the path, or null if nothing is there. */
export function inodeOf({ at }: HeldPath): string | null {
  try {
    return String(lstatSync(at, { bigint: true }).ino)
  } catch (error) {
    if (isAbsent(error)) return null
    throw error
  }
}

/** Makes renames durable. */
export async function syncFolders(renamed: readonly Ends<HeldPath>[]): Promise<void> {
  for (const folder of new Set(renamed.flatMap(({ from, to }) => [to.folder, from.folder]))) await syncDirectory(folder)
}

/** Makes a system error name the paths, which the operator knows, instead of the descriptors that led to them. */
export function namedAfter({ from, to }: Ends<HeldPath>, error: unknown): unknown {
  if (!(error instanceof Error && 'path' in error)) return error
  const message = error.message.replace(/'.*'/s, () => `'${from.path}' -> '${to.path}'`)
  return Object.assign(error, { message, path: from.path, dest: to.path })
}

/**
 * Creates the missing folders that lead to a path inside a tree, with mode 0755 minus the umask. `setAside` moves away
 * anything else that is in the place of a folder. The tree itself must exist.
 */
export function remakeFoldersSync(root: string, path: string, setAside: (found: HeldPath) => void): void {
  const { base, inside } = splitPath(root, path)
  for (let depth = 2; depth < inside.length; depth++) {
    const open: OpenDirectory[] = []
    try {
      const parts = inside.slice(0, depth)
      const held = { path: join(base, ...parts), ...holdInside(base, parts, open) }
      if (inodeOf(held) !== null && !lstatSync(held.at).isDirectory()) setAside(held)
      if (inodeOf(held) === null) mkdirSync(held.at, { mode: 0o755 })
    } finally {
      for (const directory of open) directory.close()
    }
  }
}

/**
 * Holds a path. The users who can change the directory around a tree decide what this host runs anyway. The tree's own
 * path can therefore be trusted once the tree is known to be a directory.
 */
function hold(root: string, path: string, open: OpenDirectory[]): HeldPath {
  const { base, inside } = splitPath(root, path)
  const absolute = join(root, path)
  if (inside.length > 2) return { path: absolute, ...holdInside(base, inside, open) }
  const folder = dirname(absolute)
  const isLost = inside.length === 2 && lstatIfPresentSync(folder)?.isDirectory() !== true
  return { path: absolute, ...(isLost ? LOST : { at: absolute, folder }) }
}

function holdInside(base: string, inside: readonly string[], open: OpenDirectory[]): Pick<HeldPath, 'at' | 'folder'> {
  const [tree = '', ...deeper] = inside
  const name = deeper.pop() ?? ''
  let folder = tryOpen(join(base, tree))
  for (const part of deeper) folder = folder && openInside(folder, part)
  if (folder === undefined) return LOST
  open.push(folder)
  return { at: folder.entry(name), folder: String(folder.entry()) }
}

/** Opens a folder inside an open folder, and closes the outer one: only the innermost folder is needed. */
function openInside(folder: OpenDirectory, name: string): OpenDirectory | undefined {
  try {
    return tryOpen(folder.entry(name))
  } finally {
    folder.close()
  }
}

/** Returns undefined for anything but a directory, so that a symlink that a process has put there is not followed. */
function tryOpen(path: string | Buffer): OpenDirectory | undefined {
  try {
    return openDirectorySync(path)
  } catch (error) {
    if (isAbsent(error) || (error instanceof Error && 'code' in error && error.code === 'ELOOP')) return undefined
    throw error
  }
}

/**
 * Splits a path into the directory that contains a tree (only we or an operator can change that directory), and the
 * names in the tree.
 */
function splitPath(root: string, path: string): { base: string; inside: string[] } {
  const parts = path.split('/')
  const depth = path.startsWith('.hub-deploy/snapshots/') ? 4 : path.startsWith('.hub-deploy/staging/') ? 3 : 1
  return { base: join(root, ...parts.slice(0, depth)), inside: parts.slice(depth) }
}
