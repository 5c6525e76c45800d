import { randomUUID } from 'node:crypto'
import { lstatSync, renameSync } from 'node:fs'
import { join, relative } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { z } from 'zod/mini'
import { DeploymentError, errnoOf } from '../../../core/errors.ts'
import { makePrivateDirectories } from '../../files/durable-files.ts'
import { isAbsent, pathExistsSync } from '../../files/trees/tree-walk.ts'
import { isKeptMove, isMove, isOwnPath, isPlacePath, isRestoring, movablePathSchema, stagedBy } from './change-paths.ts'
import {
  type Ends,
  type HeldEnds,
  type HeldPath,
  holdEnds,
  inodeOf,
  namedAfter,
  remakeFoldersSync,
  syncFolders,
  withEnds,
} from './held-path.ts'
import { findRenamed } from './renamed-path.ts'

/** Receives files that another process has put in the way; relative to the project root. */
const SET_ASIDE = join('.hub-deploy', 'snapshots', 'set-aside')
/** After each attempt, the wait is that many milliseconds: 1 after the first, 2 after the second. */
const MAX_ATTEMPTS = 20

export const moveSchema = z
  .object({
    type: z.literal('move'),
    from: movablePathSchema,
    to: movablePathSchema,
    /** Inode of the moved file or tree, which distinguishes it from anything else at the other path. */
    ino: z.string().check(z.regex(/^[0-9]{1,20}$/)),
    /** Its times of modification and creation, in nanoseconds: some file systems renumber inodes at each mount. */
    times: z.exactOptional(z.string().check(z.regex(/^-?[0-9]{1,20} -?[0-9]{1,20}$/))),
  })
  .check(z.refine(isMove, { error: 'is not a move that a deployment makes' }))
export type Move = z.infer<typeof moveSchema>
export type PlannedMove = Omit<Move, 'ino' | 'times'>
type Identity = Required<Pick<Move, 'ino' | 'times'>>

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
 * Identifies the file or tree to be moved; waits while another process is replacing it. Throws DeploymentError
 * `step_failed` if it is missing or the target is taken.
 */
export async function identify(root: string, move: PlannedMove): Promise<Identity> {
  requireFree(root, move)
  for (let attempt = 1; ; attempt++) {
    const identity = withEnds(root, move, ({ from }) => identityOf(from))
    if (identity !== null) return identity
    if (attempt === MAX_ATTEMPTS) throw justDisappeared(move.from)
    await setTimeout(attempt)
  }
}

/** Throws DeploymentError `step_failed` if the target is taken, unless it is a version's place, which is set aside. */
export function requireFree(root: string, move: PlannedMove): void {
  const isTree = isPlacePath(move.to) && isOwnPath(move.from)
  if (isTree || withEnds(root, move, ({ to }) => inodeOf(to)) === null) return
  throw justAppeared(move.to)
}

/** A move that was made. It is durable once its folders are synced, which stay open until its ends are closed. */
export interface MadeMove {
  readonly ends: HeldEnds
  /** Where files that were in the way are now. */
  readonly setAside: readonly string[]
}

/**
 * Makes a move. Another process, perhaps the old version itself, may replace the source or put something in the way, as
 * often as that is set aside, so the two renames follow each other immediately.
 */
export async function makeMove(root: string, paths: Ends<string>): Promise<MadeMove> {
  const setAside: string[] = []
  for (let attempt = 1; ; attempt++) {
    const ends = holdEnds(root, paths)
    try {
      if (attempt === MAX_ATTEMPTS - 1 && ends.to.folder === '') setAside.push(...(await remakeFolders(root, paths.to)))
      else if (ends.to.folder !== '' && inodeOf(ends.to) !== null) setAside.push(...(await putAside(root, ends.to)))
      renameSync(ends.from.at, ends.to.at)
      return { ends, setAside }
    } catch (error) {
      const isFinal = attempt === MAX_ATTEMPTS || !isInTheWay(error)
      const reason = isFinal && inodeOf(ends.from) === null ? justDisappeared(paths.from) : namedAfter(ends, error)
      ends.close()
      if (isFinal) throw reason
      await setTimeout(attempt)
    }
  }
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
      return { wasMade: false, setAside: [], ...replacedAt(root, move) }
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
  if (before === ino) return after !== null && stagedBy(target) !== undefined ? 'both' : 'back'
  if (after === null) return before === null ? 'gone' : 'replaced'
  if (isKeptMove(move)) return after === ino && !isMadeAnew(move, to) ? 'moved' : 'exchanged'
  if (after === ino || isOwnPath(target)) return 'moved'
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

function replacedAt(root: string, move: Move): Pick<Undone, 'replaced'> {
  return withEnds(root, move, ({ from }) => isMadeAnew(move, from)) ? replacedIn(move) : {}
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

async function putStrayAside(root: string, path: string): Promise<string[]> {
  await makePrivateDirectories(join(root, SET_ASIDE))
  return withEnds(root, { from: path, to: path }, ({ from }) =>
    inodeOf(from) === null ? [] : [putAsideSync(root, from)],
  )
}

/** Recreates the folders of a path inside a tree, after another process has removed or replaced them. */
async function remakeFolders(root: string, path: string): Promise<string[]> {
  await makePrivateDirectories(join(root, SET_ASIDE))
  const setAside: string[] = []
  remakeFoldersSync(root, path, found => setAside.push(putAsideSync(root, found)))
  return setAside
}

async function putAside(root: string, found: HeldPath): Promise<string[]> {
  await makePrivateDirectories(join(root, SET_ASIDE))
  return [putAsideSync(root, found)]
}

/** A name of at most 255 bytes: 60 UTF-16 units are 180. */
function putAsideSync(root: string, { path, at }: HeldPath): string {
  const name = relative(root, path).replaceAll('/', '_').slice(-60)
  const aside = `${SET_ASIDE}/${Date.now()}-${randomUUID().slice(0, 8)}-${name}`
  renameSync(at, join(root, aside))
  return aside
}

function isDirectory({ at }: HeldPath): boolean {
  return lstatSync(at).isDirectory()
}

function isInTheWay(error: unknown): boolean {
  return ['ENOTEMPTY', 'EEXIST', 'ENOTDIR', 'EISDIR', 'ENOENT'].includes(errnoOf(error) ?? '')
}

function identityOf({ at }: HeldPath): Identity | null {
  try {
    const { ino, mtimeNs, birthtimeNs } = lstatSync(at, { bigint: true })
    return { ino: String(ino), times: `${mtimeNs} ${birthtimeNs}` }
  } catch (error) {
    if (isAbsent(error)) return null
    throw error
  }
}

export function justAppeared(path: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `${path} has just appeared: another process is writing in this directory. Stop that process and run again.`,
  )
}

function justDisappeared(path: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `${path} has just disappeared: another process is working in this directory. Stop that process and run again.`,
  )
}
