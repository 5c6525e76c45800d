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
  /** Where this undo put files of another process that were in the way. */
  setAside: readonly string[]
  /** The kept path that no longer exists, while both trees are where they should be. */
  lost?: string
  /** The kept path that has only another file or tree now. It is lost too, unless the move was never made. */
  replaced?: string
}

/**
 * Moves back exactly the file or tree that was announced; does nothing if it is back already. Sets aside files that
 * another process has put in the way. A kept path that the new version has renamed inside its tree is moved back from
 * there. Throws if it is at neither path, except for a kept path that the old version itself removed: that one is lost,
 * and no older move depends on it.
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
 * only while its target's folder is there, too: otherwise, a new directory with the old inode may be in its place.
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

/** Waits for another process that is just renaming it, or a directory that contains it. */
async function locate(root: string, move: Move): Promise<Location> {
  for (let attempt = 1; ; attempt++) {
    const location = withEnds(root, move, ends => whereIs(move, ends))
    if (location !== 'gone' || !isKeptMove(move) || attempt === MAX_ATTEMPTS) return location
    await setTimeout(attempt)
  }
}

/** `replaced`: only another file or tree is where it was; `exchanged`: one is where it was moved to. */
type Location = 'back' | 'moved' | 'both' | 'replaced' | 'exchanged' | 'gone'

/**
 * In our own folders, there are only files that we moved there, so their inodes do not matter, except in a tree that was
 * in its place: there, the new version may have worked.
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
  // Settings that were written anew are still those of the host.
  if (before === null && isSettingsMove(move)) return 'moved'
  const isNewTree = before === null && stagedBy(source) !== undefined && pathExistsSync(from.folder)
  return isNewTree && identityOf(to)?.times === times ? 'moved' : 'gone'
}

/**
 * Moves back what is at the target: a file, for example, that was written anew. But if the new version has renamed the
 * announced path inside its tree, as for a backup, moves that back, and sets aside what is at the target.
 */
async function moveExchangedBack(root: string, move: Move): Promise<Undone> {
  // Something is there to move back, so a tree that cannot be searched does not stop the undo.
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

/** Returns undefined if the new version has not renamed it inside its tree, which is deleted later. */
async function moveRenamedBack(root: string, move: Move): Promise<Undone | undefined> {
  const path = isKeptMove(move) ? await findRenamed(root, move) : undefined
  if (path === undefined) return undefined
  return { wasMade: true, setAside: await moveDurably(root, { from: path, to: move.from }) }
}

/** Returns where files that were in the way are now. */
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
  throw new Error(`the files that were moved from ${from} to ${to} are at neither path`)
}

/** True if what is there has only the number of the file or folder that was moved, which somebody has removed. */
function isMadeAnew(move: Move, found: HeldPath): boolean {
  const [before, now] = [madeAt(move), madeAt(identityOf(found))]
  return before !== undefined && now !== undefined && before !== now
}

/** Undefined where the file system does not say. */
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
