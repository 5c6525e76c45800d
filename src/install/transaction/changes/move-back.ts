import { lstatSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { isKeptMove, isOwnPath, isRestoring, isSettingsMove, stagedBy } from './change-paths.ts'
import { type Ends, type HeldPath, inodeOf, syncFolders, withEnds } from './held-path.ts'
import { type Identity, identityOf, MAX_ATTEMPTS, type Move, makeMove } from './move.ts'
import { findRenamed } from './renamed-path.ts'
import { putStrayAside } from './set-aside.ts'

export interface Undone {
  /** Whether the change had been made and is now undone; a directory that was only created does not count. */
  wasMade: boolean
  /** The paths to which this undo moved files of another process that were in the way. */
  setAside: readonly string[]
  /** The kept path that is in neither tree, although both trees are where they should be. */
  lost?: string
  /** The kept path that now leads only to another file or tree. The original is lost unless the move was never made. */
  replaced?: string
}

/**
 * Moves back the file or tree that was announced; does nothing if it is back already. Sets aside files that another
 * process has put in the way. A kept path that the new version has renamed inside its tree is moved back from the new
 * name. Throws if the file or tree is at neither path, unless another file or tree is at the source and nothing is at
 * the target. Does not throw for a tree that was to be installed, because the host does not run it. Does not throw for
 * a kept path that a process has removed, either: that path is lost, and no older move depends on it.
 */
export async function moveBack(root: string, move: Move): Promise<Undone> {
  switch (await locate(root, move)) {
    case 'back':
      return { wasMade: false, setAside: [] }
    case 'moved':
      return await moveTargetBack(root, move)
    case 'exchanged':
      return await moveExchangedBack(root, move)
    case 'both':
      return { wasMade: false, setAside: await putStrayAside(root, move.to) }
    case 'replaced':
      return (await moveRenamedBack(root, move)) ?? { wasMade: false, setAside: [], ...replacedIn(move) }
    case 'gone':
      return (await moveRenamedBack(root, move)) ?? withEnds(root, move, ends => withoutIt(move, ends))
  }
}

/**
 * True if a move was certainly not made, or is certainly undone. A path moved into the staging folder counts as back
 * only while the folder of its target still exists. Otherwise, a new file or directory with the old inode may be at the
 * source.
 */
export function isMovedBack(root: string, move: Move): boolean {
  return withEnds(root, move, ({ from, to }) => {
    const before = inodeOf(from)
    if (stagedBy(move.from) !== undefined) return before !== null
    if (stagedBy(move.to) !== undefined)
      return before === move.ino && to.folder !== '' && inodeOf(to) === null && !isMadeAnew(move, from)
    return before === move.ino || (before !== null && isOwnPath(move.to) && inodeOf(to) === null)
  })
}

/**
 * Finds the moved file or tree. Waits while another process is renaming a kept path or a directory that contains it.
 */
async function locate(root: string, move: Move): Promise<Location> {
  for (let attempt = 1; ; attempt++) {
    const location = withEnds(root, move, ends => whereIs(move, ends))
    if (location !== 'gone' || !isKeptMove(move) || attempt === MAX_ATTEMPTS) return location
    await setTimeout(attempt)
  }
}

/** `replaced`: only a different file or tree is at the source. `exchanged`: another file or tree is at the target. */
type Location = 'back' | 'moved' | 'both' | 'replaced' | 'exchanged' | 'gone'

/**
 * Our own folders contain only files that we moved there, so their inodes do not matter. Kept paths are the exception,
 * because the new version may have worked in the tree that contains them.
 */
function whereIs(move: Move, { from, to }: Ends<HeldPath>): Location {
  const { from: source, to: target, ino, times } = move
  const [before, after] = [inodeOf(from), inodeOf(to)]
  const isKept = isKeptMove(move)
  if (before === ino && !(isKept && isMadeAnew(move, from)))
    return after !== null && stagedBy(target) !== undefined ? 'both' : 'back'
  if (after === null) return before === null ? 'gone' : 'replaced'
  if (isKept) return after === ino && !isMadeAnew(move, to) ? 'moved' : 'exchanged'
  if (after === ino || isOwnPath(target)) return 'moved'
  // Settings that another process has rewritten still belong to the host.
  if (before === null && isSettingsMove(move)) return 'moved'
  const isNewTree = before === null && stagedBy(source) !== undefined && pathExistsSync(from.folder)
  return isNewTree && identityOf(to)?.times === times ? 'moved' : 'gone'
}

/**
 * Moves back the file or tree at the target, such as a file that was rewritten. The new version may instead have
 * renamed the announced file or tree inside its own tree, for example as a backup. If so, moves the announced file or
 * tree back, and sets aside the file or tree at the target.
 */
async function moveExchangedBack(root: string, move: Move): Promise<Undone> {
  // The target can be moved back in any case, so a tree that cannot be searched does not stop the undo.
  const renamed = await findRenamed(root, move).catch(() => undefined)
  if (renamed !== undefined) {
    const setAside = await moveDurably(root, { from: renamed, to: move.from })
    return { wasMade: true, setAside: [...setAside, ...(await putStrayAside(root, move.to))] }
  }
  const isLost = withEnds(root, move, ({ to }) => isDirectory(to) && isMadeAnew(move, to))
  return { ...(await moveTargetBack(root, move)), ...(isLost ? replacedIn(move) : {}) }
}

async function moveTargetBack(root: string, { from, to }: Move): Promise<Undone> {
  return { wasMade: true, setAside: await moveDurably(root, { from: to, to: from }) }
}

/**
 * Moves back a kept path that the new version has renamed inside its tree. Returns undefined if there is no such path.
 */
async function moveRenamedBack(root: string, move: Move): Promise<Undone | undefined> {
  const path = isKeptMove(move) ? await findRenamed(root, move) : undefined
  if (path === undefined) return undefined
  return { wasMade: true, setAside: await moveDurably(root, { from: path, to: move.from }) }
}

/** Returns the paths to which files that were in the way were moved. */
async function moveDurably(root: string, paths: Ends<string>): Promise<readonly string[]> {
  const { ends, setAside } = await makeMove(root, paths)
  try {
    await syncFolders([ends])
    return setAside
  } finally {
    ends.close()
  }
}

/** A tree that was to be installed may be gone: the host does not run it. Everything else belongs to the host. */
function withoutIt({ from, to }: Move, ends: Ends<HeldPath>): Undone {
  if (stagedBy(from) !== undefined || isRestoring({ from, to })) return { wasMade: true, setAside: [] }
  const areTreesThere = ends.from.folder !== '' && ends.to.folder !== ''
  if (isKeptMove({ from, to }) && areTreesThere) return { wasMade: true, setAside: [], lost: from }
  throw new Error(`the files to move back from ${to} to ${from} are at neither path`)
}

/**
 * True if the file or folder found was created at a different time than the moved file or folder, even if the inodes
 * are equal.
 */
function isMadeAnew(move: Move, found: HeldPath): boolean {
  const [before, now] = [madeAt(move), madeAt(identityOf(found))]
  return before !== undefined && now !== undefined && before !== now
}

/** Returns the time of creation, or undefined if the file system does not record it. */
function madeAt(identity: Partial<Identity> | null): string | undefined {
  const made = identity?.times?.split(' ')[1]
  return made === '0' ? undefined : made
}

function replacedIn(move: Move): Pick<Undone, 'replaced'> {
  return isKeptMove(move) ? { replaced: move.from } : {}
}

function isDirectory({ at }: HeldPath): boolean {
  return lstatSync(at).isDirectory()
}
