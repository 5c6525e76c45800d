import { lstatSync, mkdirSync, readdirSync, renameSync, unlinkSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { z } from 'zod/mini'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { countInWords } from '../../core/text.ts'
import { makePrivateDirectories, syncDirectory } from '../files/durable.ts'
import { toHostError } from '../files/errors.ts'
import { type OpenDirectory, openDirectorySync } from '../files/open.ts'
import { TimeSlice } from '../files/time-slice.ts'
import { isAbsent, lstatIfPresentSync, pathExistsSync } from '../files/walk.ts'
import { SET_ASIDE } from '../host/layout.ts'
import { nextAsidePath } from '../host/snapshots.ts'
import { isKeptMove, isMove, isOwnPath, isPlacePath, isRestoring, movablePathSchema, stagedBy } from './paths.ts'

/** The wait after attempt n is n milliseconds. */
const MAX_ATTEMPTS = 20

export const moveSchema = z
  .object({
    type: z.literal('move'),
    from: movablePathSchema,
    to: movablePathSchema,
    /** The inode of the moved file or tree, which distinguishes it from anything else at either path. */
    ino: z.string().check(z.regex(/^[0-9]{1,20}$/)),
    /**
     * The times of modification and creation, in nanoseconds; needed because some file systems renumber inodes at each
     * mount.
     */
    times: z.string().check(z.regex(/^-?[0-9]{1,20} -?[0-9]{1,20}$/)),
  })
  .check(z.refine(isMove, { error: 'is not a move that a deployment makes' }))
export type Move = z.infer<typeof moveSchema>
export type PlannedMove = Omit<Move, 'ino' | 'times'>
export type Identity = Pick<Move, 'ino' | 'times'>

/**
 * Identifies the file or tree to be moved; waits while another process is replacing it. Throws DeploymentError
 * `step_failed` if the source is missing.
 */
export async function identify(root: string, move: PlannedMove): Promise<Identity> {
  requireFree(root, move)
  for (let attempt = 1; ; attempt++) {
    const identity = withEnds(root, move, ({ from }) => identityAt(from))
    if (identity !== null) return identity
    if (attempt === MAX_ATTEMPTS) throw justDisappeared(move.from)
    await setTimeout(attempt)
  }
}

/**
 * Throws DeploymentError `step_failed` if the target of a move is taken, unless the move installs a tree: in that case,
 * `makeMove` sets aside anything in the place.
 */
export function requireFree(root: string, move: PlannedMove): void {
  const isTree = isPlacePath(move.to) && isOwnPath(move.from)
  if (isTree || withEnds(root, move, ({ to }) => inodeOf(to)) === null) return
  throw justAppeared(move.to)
}

/**
 * A move that was made. The move is durable once its two folders are synced. The folders stay open until `ends` is
 * closed.
 */
interface MadeMove {
  readonly ends: HeldEnds
  /** The paths to which files that were in the way were moved. */
  readonly setAside: readonly string[]
}

/**
 * Makes a move. Another process, perhaps the old version itself, may replace the source, or put files in the way each
 * time files are set aside. The two renames therefore follow each other immediately, and are attempted up to 20 times.
 * Throws DeploymentError `step_failed` if the source is missing after the last attempt, and otherwise the system's
 * error.
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

function isInTheWay(error: unknown): boolean {
  return ['ENOTEMPTY', 'EEXIST', 'ENOTDIR', 'EISDIR', 'ENOENT'].includes(errnoOf(error) ?? '')
}

/** Returns the identity of the file or tree at a path, or null if nothing is there. */
function identityAt({ at }: HeldPath): Identity | null {
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
    `${path} has just appeared: another process is writing in its directory. Stop that process and run again.`,
  )
}

export function justDisappeared(path: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `${path} has just disappeared: another process is working in its directory. Stop that process and run again.`,
  )
}

export interface Undone {
  /** Whether the change had been made and is now undone; a directory that was only created does not count. */
  wasMade: boolean
  /** The paths to which this undo moved files of another process that were in the way. */
  setAside: readonly string[]
  /** The kept path that is in neither tree, although both trees are where they should be. */
  lost?: string
  /** The kept path that now leads only to another file or tree. The original is lost unless the move was never made. */
  replaced?: string
  /** Why the undo could not be made durable: its sync failed, although its rename did not. */
  unsynced?: unknown
}

/**
 * Moves back the file or tree that was announced; does nothing if it is back already. Sets aside files that another
 * process has put in the way. A kept path that the new version has renamed inside its tree is moved back from the new
 * name. Throws if the file or tree is at neither path, unless another file or tree is at the source and nothing is at
 * the target. Does not throw for a tree that was to be installed, because the host does not run it. Does not throw for
 * a kept path that a process has removed, either: that path is lost, and no older move depends on it.
 */
export async function undoMove(root: string, move: Move): Promise<Undone> {
  const { from, hasStray, ...undone } = await planUndo(root, move)
  const made = from === undefined ? undefined : await makeMove(root, { from, to: move.from })
  const ends = made?.ends ?? holdEnds(root, move)
  try {
    // An earlier undo may have moved the path back without a sync.
    const synced = await trySync([ends.to.folder, ends.from.folder])
    const setAside = [...(made?.setAside ?? []), ...(hasStray ? await putStrayAside(root, move) : [])]
    const aside = setAside.length === 0 ? {} : await trySync([join(root, SET_ASIDE)])
    return { ...undone, ...aside, ...synced, setAside }
  } finally {
    ends.close()
  }
}

/** Makes an undo in these folders durable, or returns why it could not. Skips folders that do not exist. */
export async function trySync(folders: readonly string[]): Promise<Pick<Undone, 'unsynced'>> {
  try {
    for (const folder of new Set(folders)) if (folder !== '' && pathExistsSync(folder)) await syncDirectory(folder)
    return {}
  } catch (error) {
    return { unsynced: error }
  }
}

/** How to undo a move, and what the undo cannot put back. */
interface PlannedUndo extends Omit<Undone, 'setAside'> {
  /** The path to move back; absent if nothing has to be moved. */
  readonly from?: string
  /** Whether another file or tree is at the target of the move, and has to be set aside. */
  readonly hasStray?: true
}

async function planUndo(root: string, move: Move): Promise<PlannedUndo> {
  const location = await locate(root, move)
  switch (location) {
    case 'back':
      return { wasMade: false }
    case 'moved':
      return { wasMade: true, from: move.to }
    case 'exchanged':
      return await planExchangedBack(root, move)
    case 'both':
      return { wasMade: false, hasStray: true }
    case 'replaced':
    case 'gone': {
      const renamed = isKeptMove(move) ? await findRenamed(root, move) : undefined
      if (renamed !== undefined) return { wasMade: true, from: renamed }
      if (location === 'replaced') return { wasMade: false, ...replacedIn(move) }
      return withEnds(root, move, ends => withoutIt(move, ends))
    }
  }
}

/**
 * True if a move was certainly not made, or is certainly undone. A path moved into the staging folder counts as back
 * only while the folder of its target still exists. Otherwise, a new file or directory with the old inode may be at the
 * source.
 */
export function isMoveUndone(root: string, move: Move): boolean {
  return withEnds(root, move, ({ from, to }) => {
    const before = inodeOf(from)
    // After a power cut, a moved file may have both names.
    if (before !== null && before === inodeOf(to)) return false
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

/**
 * `both`: a file or tree is also at the target, perhaps the moved file itself. `replaced`: only a different file or tree
 * is at the source. `exchanged`: another file or tree is at the target.
 */
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
    return after === before || (after !== null && stagedBy(target) !== undefined) ? 'both' : 'back'
  if (after === null) return before === null ? 'gone' : 'replaced'
  if (isKept) return after === ino && !isMadeAnew(move, to) ? 'moved' : 'exchanged'
  if (after === ino || isOwnPath(target)) return 'moved'
  const isNewTree = before === null && stagedBy(source) !== undefined && pathExistsSync(from.folder)
  return isNewTree && identityAt(to)?.times === times ? 'moved' : 'gone'
}

/**
 * Plans to move back the file or tree at the target, such as a file that was rewritten. The new version may instead
 * have renamed the announced file or tree inside its own tree, for example as a backup. If so, the announced file or
 * tree moves back, and the file or tree at the target is set aside.
 */
async function planExchangedBack(root: string, move: Move): Promise<PlannedUndo> {
  // The target can be moved back in any case, so a tree that cannot be searched does not stop the undo.
  const renamed = await findRenamed(root, move).catch(() => undefined)
  if (renamed !== undefined) return { wasMade: true, from: renamed, hasStray: true }
  const isLost = withEnds(root, move, ({ to }) => isDirectory(to) && isMadeAnew(move, to))
  return { wasMade: true, from: move.to, ...(isLost ? replacedIn(move) : {}) }
}

/** A tree that was to be installed may be gone: the host does not run it. Everything else belongs to the host. */
function withoutIt({ from, to }: Move, ends: Ends<HeldPath>): PlannedUndo {
  if (stagedBy(from) !== undefined || isRestoring({ from, to })) return { wasMade: true }
  const areTreesThere = ends.from.folder !== '' && ends.to.folder !== ''
  if (isKeptMove({ from, to }) && areTreesThere) return { wasMade: true, lost: from }
  throw new Error(`the files to move back from ${to} to ${from} are at neither path`)
}

/**
 * True if the file or folder found was created at a different time than the moved file or folder, even if the inodes
 * are equal.
 */
function isMadeAnew(move: Move, found: HeldPath): boolean {
  const [before, now] = [madeAt(move), madeAt(identityAt(found))]
  return before !== undefined && now !== undefined && before !== now
}

/** Returns the time of creation, or undefined if the file system does not record it. */
function madeAt(identity: Identity | null): string | undefined {
  const made = identity?.times.split(' ')[1]
  return made === '0' ? undefined : made
}

function replacedIn(move: Move): Pick<Undone, 'replaced'> {
  return isKeptMove(move) ? { replaced: move.from } : {}
}

function isDirectory({ at }: HeldPath): boolean {
  return lstatSync(at).isDirectory()
}

/** A file or directory that was moved into a staged tree. */
interface MovedFile {
  /** Both relative to the root. */
  readonly from: string
  readonly to: string
  readonly ino: string
  /** Times of modification and creation, in nanoseconds. */
  readonly times?: string
}

/** Bounds the search while the new version creates one file after another. */
const MAX_ENTRIES = 1_000_000

/**
 * Finds, by its inode and its time of creation, a file or directory that was moved into a staged tree and has been
 * renamed there since. Returns its path relative to the root, or undefined if there is none or if the time of creation
 * is not known. Follows no symlink. Another process may replace the path at any time, so reach it through its open
 * folder. Throws if the tree has too many entries or a folder that cannot be searched: the tree is deleted later, and a
 * file that was not found would be deleted with it.
 */
export async function findRenamed(root: string, moved: MovedFile, limit = MAX_ENTRIES): Promise<string | undefined> {
  const made = moved.times?.split(' ')[1] ?? '0'
  if (made === '0') return undefined
  const slice = new TimeSlice()
  const pending = [stagedTreeOf(moved)]
  let left = limit
  for (let folder = pending.pop(); folder !== undefined; folder = pending.pop()) {
    for (const entry of searching(folder, () => readdirSync(join(root, folder), { withFileTypes: true })) ?? []) {
      if (left-- === 0) throw tooMany(moved, limit)
      if (slice.isOver()) await slice.giveBack()
      const path = `${folder}/${entry.name}`
      if (searching(folder, () => isIt(join(root, path), moved.ino, made))) return path
      if (entry.isDirectory()) pending.push(path)
    }
  }
  return undefined
}

/** `.hub-deploy/staging/<deployment>/<tree>`. */
function stagedTreeOf({ to }: MovedFile): string {
  return to.split('/').slice(0, 4).join('/')
}

function isIt(path: string, ino: string, made: string): boolean {
  const stat = lstatSync(path, { bigint: true })
  return String(stat.ino) === ino && String(stat.birthtimeNs) === made
}

function tooMany(moved: MovedFile, limit: number): Error {
  return new Error(
    `${moved.from} is missing. The new version may have renamed it, but ${stagedTreeOf(moved)} has more than ${countInWords(limit)} files and directories, too many to search. ` +
      'Stop the process that creates them, and run again.',
  )
}

/** Returns undefined if the entry or the folder no longer exists. */
function searching<Found>(folder: string, read: () => Found): Found | undefined {
  try {
    return read()
  } catch (error) {
    if (isAbsent(error)) return undefined
    throw toHostError(error, `searching ${folder} for a path that the new version may have renamed`)
  }
}

/** Moves away a file or tree that is in the way of a move. Returns its new path, relative to the root. */
async function putAside(root: string, found: HeldPath): Promise<string[]> {
  await makePrivateDirectories(join(root, SET_ASIDE))
  return [putAsideSync(root, found)]
}

/**
 * Moves away the file or tree at the target of an undone move. Returns its new path, or no path if nothing was there, or
 * only the moved file itself.
 */
async function putStrayAside(root: string, move: Move): Promise<string[]> {
  if (withEnds(root, move, removeSecondName)) return []
  await makePrivateDirectories(join(root, SET_ASIDE))
  return withEnds(root, move, ({ to }) => (inodeOf(to) === null ? [] : [putAsideSync(root, to)]))
}

/**
 * Removes the name at the target if the same file is at the source: some file systems, such as btrfs, keep both names of
 * a file if the power fails right after its move. Returns whether it did.
 */
function removeSecondName({ from, to }: Ends<HeldPath>): boolean {
  const found = inodeOf(to)
  if (found === null || found !== inodeOf(from)) return false
  unlinkSync(to.at)
  return true
}

/**
 * Recreates the folders of a path inside a tree, after another process has removed or replaced them. Returns the paths
 * to which the replacements were moved.
 */
async function remakeFolders(root: string, path: string): Promise<string[]> {
  await makePrivateDirectories(join(root, SET_ASIDE))
  const setAside: string[] = []
  remakeFoldersSync(root, path, found => setAside.push(putAsideSync(root, found)))
  return setAside
}

/** Moves the file or tree to a name of at most 255 bytes: 60 UTF-16 units are at most 180 bytes. */
function putAsideSync(root: string, { path, at }: HeldPath): string {
  const aside = nextAsidePath(root, relative(root, path).replaceAll('/', '_').slice(-60))
  renameSync(at, join(root, aside))
  return aside
}

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
interface Ends<End> {
  readonly from: End
  readonly to: End
}

/** The two ends of a move, with their folders held open until `close` is called. */
export interface HeldEnds extends Ends<HeldPath> {
  close(): void
}

function holdEnds(root: string, { from, to }: Ends<string>): HeldEnds {
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
function withEnds<Result>(root: string, paths: Ends<string>, act: (ends: HeldEnds) => Result): Result {
  const ends = holdEnds(root, paths)
  try {
    return act(ends)
  } finally {
    ends.close()
  }
}

/** Returns the inode at the path, or null if nothing is there. */
function inodeOf({ at }: HeldPath): string | null {
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

/** Makes the moves to these paths durable, so that no file of another process is at neither of its two paths. */
export async function syncSetAside(root: string, setAside: readonly string[]): Promise<void> {
  if (setAside.length > 0) await syncDirectory(join(root, SET_ASIDE))
}

/** Makes a system error name the paths, which the operator knows, instead of the descriptors that led to them. */
function namedAfter({ from, to }: Ends<HeldPath>, error: unknown): unknown {
  if (!(error instanceof Error && 'path' in error)) return error
  const message = error.message.replace(/'.*'/s, () => `'${from.path}' -> '${to.path}'`)
  return Object.assign(error, { message, path: from.path, dest: to.path })
}

/**
 * Creates the missing folders that lead to a path inside a tree, with mode 0755 minus the umask. `setAside` moves away
 * anything else that is in the place of a folder. The tree itself must exist.
 */
function remakeFoldersSync(root: string, path: string, setAside: (found: HeldPath) => void): void {
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
  // Only a shelf may be a symlink of the operator.
  if (isOwnPath(path) && lstatIfPresentSync(base)?.isDirectory() === false) return { path: absolute, ...LOST }
  if (inside.length > 2) return { path: absolute, ...holdInside(base, inside, open) }
  const folder = dirname(absolute)
  const isLost = inside.length === 2 && lstatIfPresentSync(folder)?.isDirectory() !== true
  return { path: absolute, ...(isLost ? LOST : { at: absolute, folder }) }
}

/** Holds one path of a change while `act` works with it. */
export function withHeld<Result>(root: string, path: string, act: (held: HeldPath) => Result): Result {
  const open: OpenDirectory[] = []
  try {
    return act(hold(root, path, open))
  } finally {
    for (const directory of open) directory.close()
  }
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
export function openInside(folder: OpenDirectory, name: string): OpenDirectory | undefined {
  try {
    return tryOpen(folder.entry(name))
  } finally {
    folder.close()
  }
}

/** Returns undefined for anything but a directory, so that a symlink that a process has put there is not followed. */
export function tryOpen(path: string | Buffer): OpenDirectory | undefined {
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
