import { linkSync, lstatSync, realpathSync, renameSync, type Stats, unlinkSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { z } from 'zod/mini'
import { DeploymentError } from '../../core/errors.ts'
import { isWithoutLinks, linkOrClaimSync, makeOpenDirectorySync, syncDirectory } from '../files/durable.ts'
import type { OpenDirectory } from '../files/open.ts'
import { removeIfEmptySync } from '../files/remove-tree.ts'
import { isAbsent, pathExistsSync } from '../files/walk.ts'
import { type Place, placeAt, placePath } from '../host/layout.ts'
import {
  type HeldEnds,
  type HeldPath,
  identify,
  isMoveUndone,
  justAppeared,
  type Move,
  makeMove,
  moveSchema,
  openInside,
  type PlannedMove,
  requireFree,
  syncFolders,
  syncSetAside,
  tryOpen,
  trySync,
  type Undone,
  undoMove,
  withHeld,
} from './move.ts'
import { directorySchema, isPlacePath, settingsPathSchema, stagedBy, stagedPathSchema } from './paths.ts'

/**
 * The changes that a deployment makes outside its staging folder, as data. The journal announces them, with everything
 * that an undo needs. Paths are relative to the project root, and lie where that type of change may happen.
 */
export const changeSchema = z.lazy(() =>
  z.discriminatedUnion('type', [
    z.object({ type: z.literal('make_directory'), path: directorySchema }),
    moveSchema,
    createdFileSchema,
  ]),
)
export type Change = z.infer<typeof changeSchema>

/** A change that is not announced yet. The file or tree that it moves is identified when the change is announced. */
export type PlannedChange = Exclude<Change, Move | CreatedFile> | UnidentifiedFile | PlannedMove

/** True if the change takes nothing from, and puts nothing into, the staging folder of another deployment. */
export function isOfDeployment(change: Change, deploymentId: string): boolean {
  const paths = change.type === 'move' ? [change.from, change.to] : change.type === 'create_file' ? [change.staged] : []
  return paths.every(path => [undefined, deploymentId].includes(stagedBy(path)))
}

/** True if a path of one change is a path of the other, or lies above or below one. Newer ones are undone first. */
export function isRelated(a: Change, b: Change): boolean {
  const isWithin = (path: string, other: string): boolean => path === other || path.startsWith(`${other}/`)
  return pathsOf(a).some(path => pathsOf(b).some(other => isWithin(path, other) || isWithin(other, path)))
}

function pathsOf(change: Change): readonly string[] {
  switch (change.type) {
    case 'make_directory':
      return [change.path]
    case 'move':
      return [change.from, change.to]
    case 'create_file':
      return [change.staged, change.path]
  }
}

/** Returns the places that changes move a tree out of or into, each once. */
export function placesIn(changes: readonly Change[]): Place[] {
  const paths = changes.flatMap(change => (change.type === 'move' ? [change.from, change.to] : []))
  return [...new Set(paths)].filter(isPlacePath).map(placeAt)
}

/**
 * Returns the directories of parts, relative to the project root, in which changes create, move or remove something,
 * each once. Inside a part, whose files may belong to its service, that is the directory of the part: `installed` and
 * the changes themselves say where parts are.
 */
export function directoriesIn(changes: readonly Change[], installed: readonly Place[] = []): string[] {
  const moved = placesIn(changes)
  const around = (path: string): string | undefined =>
    [...moved, ...installed].find(place => path.startsWith(`${placePath(place)}/`))?.directory
  const others = changes.flatMap(change => {
    if (change.type === 'move') return []
    const usual = change.type === 'make_directory' ? change.path : dirname(change.path.replace(/\/?\.env$/, ''))
    return [around(change.path) ?? usual]
  })
  return [...new Set([...moved.map(({ directory }) => directory), ...others])]
}

/**
 * Returns a change as it is announced: with the identity of the file or tree that it moves. Waits while another process
 * is replacing that file or tree. Throws DeploymentError `step_failed` if the source of a move is missing or if the
 * path to be created is taken. An impossible change must not be announced, because undoing it might move the host's own
 * files.
 */
export async function announceable(root: string, change: PlannedChange): Promise<Change> {
  if (change.type === 'move') return { ...change, ...(await identify(root, change)) }
  if (pathExistsSync(join(root, change.path))) throw justAppeared(change.path)
  return change.type === 'create_file' ? identifyFileSync(root, change) : change
}

/** Each move keeps the folders of its two ends open, and a process is often limited to 1,024 descriptors. */
const MAX_OPEN_MOVES = 100

/**
 * Makes independent changes, one right after another. Makes moves durable only afterwards, in groups of at most 100,
 * because each move keeps descriptors open until it is durable. Other changes are durable at once. Calls `reach` with
 * the index of each change before the change is made. Never replaces an existing file. Sets aside files that another
 * process has put in the place of a new version, and returns the paths to which they were moved.
 */
export async function applyChanges(
  root: string,
  changes: readonly PlannedChange[],
  reach: (index: number) => void = () => undefined,
): Promise<readonly string[]> {
  const open: HeldEnds[] = []
  const setAside: string[] = []
  try {
    for (const [index, change] of changes.entries()) {
      reach(index)
      if (open.length === MAX_OPEN_MOVES) await syncAndClose(open)
      if (change.type === 'move') {
        requireFree(root, change)
        const { ends, setAside: found } = await makeMove(root, change)
        open.push(ends)
        setAside.push(...found)
      } else await make(root, change)
    }
    await syncAndClose(open)
    await syncSetAside(root, setAside)
    return setAside
  } finally {
    for (const ends of open) ends.close()
  }
}

async function syncAndClose(open: HeldEnds[]): Promise<void> {
  await syncFolders(open)
  for (const ends of open.splice(0)) ends.close()
}

/** Makes the change, which is durable on return. */
async function make(root: string, change: Exclude<PlannedChange, PlannedMove>): Promise<void> {
  if (change.type === 'create_file') return await createFromStaged(root, change)
  makeOpenDirectorySync(join(root, change.path))
  await syncDirectory(dirname(join(root, change.path)))
}

/**
 * Undoes a change, whether it was made, half made or not made at all. May be repeated. Sets aside, and never removes,
 * files that another process has put in the way. For a move, throws as `undoMove` does.
 */
export async function undoChange(root: string, change: Change): Promise<Undone> {
  switch (change.type) {
    case 'make_directory':
      removeIfEmptySync(join(root, change.path))
      return { wasMade: false, setAside: [] }
    case 'move':
      return await undoMove(root, change)
    case 'create_file':
      return await undoCreated(root, change)
  }
}

/** True if a move was certainly not made, or is certainly undone: the file or tree is at its source. */
export function isBack(root: string, change: Change): boolean {
  return change.type === 'move' && isMoveUndone(root, change)
}

/** True if the host differs from its state before this change; a directory that was only created does not count. */
export function isMade(root: string, change: Change): boolean {
  switch (change.type) {
    case 'make_directory':
      return false
    case 'move':
      return !isMoveUndone(root, change)
    case 'create_file':
      return isCreated(root, change)
  }
}

/** Describes a change for an operator who has to undo it by hand. */
export function describeChange(change: Change): string {
  switch (change.type) {
    case 'make_directory':
      return `the directory ${change.path} was created`
    case 'move':
      return `${change.from} was moved to ${change.to}`
    case 'create_file':
      return `${change.path} was created`
  }
}

/** Describes the undo of a change. */
export function describeUndo(change: Exclude<Change, { type: 'make_directory' }>): string {
  return change.type === 'move'
    ? `moved ${change.to} back to ${change.from}`
    : `removed ${change.path}, which the deployment had created`
}

/**
 * Describes a lost kept path, as seen from the place to which the path's tree returns. One of `changes` moved that
 * tree.
 */
export function describeLost(path: string, changes: readonly Change[]): string {
  const tree = changes.filter(change => change.type === 'move').find(({ to }) => path.startsWith(`${to}/`))
  const place = tree === undefined ? path : `${tree.from}${path.slice(tree.to.length)}`
  return `${place} was removed or replaced by another process after the deployment began, and cannot be put back`
}

/**
 * A second name for a complete staged file, whose first name stays in staging as proof that the file is ours. If the
 * file system has no hard links, an empty file claims the name, and the staged file then replaces the empty one.
 */
const createdFileSchema = z.object({
  type: z.literal('create_file'),
  staged: stagedPathSchema,
  path: settingsPathSchema,
  /** The inode of the staged file. */
  ino: z.string().check(z.regex(/^[0-9]{1,20}$/)),
})
type CreatedFile = z.infer<typeof createdFileSchema>
type UnidentifiedFile = Omit<CreatedFile, 'ino'>

/** Returns the file as it is announced, with the inode of the staged file. */
function identifyFileSync(root: string, file: UnidentifiedFile): CreatedFile {
  return { ...file, ino: String(lstatSync(join(root, file.staged), { bigint: true }).ino) }
}

/** Creates the file, durably. Never replaces another file, and never creates it behind a symlink in a plugin. */
async function createFromStaged(root: string, file: UnidentifiedFile): Promise<void> {
  const from = join(root, file.staged)
  const shelf = openShelf(root, file)
  if (shelf === undefined) throw noFolder(file.path)
  try {
    if (!linkOrClaimSync(from, String(shelf.entry(basename(file.path))))) await syncDirectory(dirname(from))
    await syncDirectory(String(shelf.entry()))
  } finally {
    shelf.close()
  }
}

function noFolder(path: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `${path} cannot be created: a directory on the way there is missing, or is a symlink. Another process may be working there: stop it and run again.`,
  )
}

/** Removes the file at the path if it is the created file. */
async function undoCreated(root: string, file: CreatedFile): Promise<Undone> {
  const path = join(root, file.path)
  const wasMade = withEntries(root, file, (staged, shelf) => {
    if (!isOurs(file, staged, shelf)) return false
    const at = shelf.entry(basename(path))
    if (statAt(staged.at) !== undefined) unlinkSync(at)
    // Return the file to staging, where it proves that a file created at the path later is not ours.
    else renameSync(at, staged.at)
    return true
  })
  return { wasMade, setAside: [], ...(await trySync([dirname(path)])) }
}

/** True if the file at the path is the created file. */
function isCreated(root: string, file: CreatedFile): boolean {
  return withEntries(root, file, (staged, shelf) => isOurs(file, staged, shelf))
}

/** Holds the staged file, and opens the folder of the created one. Returns false if there is no such folder. */
function withEntries(
  root: string,
  file: CreatedFile,
  act: (staged: HeldPath, shelf: OpenDirectory) => boolean,
): boolean {
  const shelf = openShelf(root, file)
  try {
    return shelf !== undefined && withHeld(root, file.staged, staged => act(staged, shelf))
  } finally {
    shelf?.close()
  }
}

/**
 * Opens the folder of a settings file. Follows a symlink to a shelf, because an operator may have set it up, but no
 * symlink in the place of a part or inside a part: its service could lead this action out of the project root.
 */
function openShelf(root: string, file: UnidentifiedFile): OpenDirectory | undefined {
  const names = dirname(file.path).split('/')
  const inside = names.splice(depthOfShelf(file, names))
  const shelf = join(root, ...names)
  let folder = pathExistsSync(shelf) ? tryOpen(realpathSync(shelf)) : undefined
  for (const name of inside) folder = folder && openInside(folder, name)
  return folder
}

/** The name of a staged file for the inside of a plugin says the plugin's id. */
const INJECTED = /\/injected\/([^/]+)\.env$/

/** Returns how many of the names on the way to a settings file lead to the directory of parts. */
function depthOfShelf({ staged, path }: UnidentifiedFile, names: readonly string[]): number {
  const id = INJECTED.exec(staged)?.[1]
  const at = id === undefined ? -1 : names.indexOf(id, 1)
  if (at > 0) return at
  return basename(path) === '.env' ? names.length - 1 : names.length
}

function isOurs(file: CreatedFile, { at, folder }: HeldPath, shelf: OpenDirectory): boolean {
  const there = statAt(shelf.entry(basename(file.path)))
  if (there === undefined) return false
  const staged = statAt(at)
  if (staged === undefined) return String(there.ino) === file.ino && folder !== '' && pathExistsSync(folder)
  return isSameFile(staged, there) || (isClaim(there) && !hasLinks(at))
}

/** True if the file system has hard links. Only without them does this action claim a path with an empty file. */
function hasLinks(path: string | Buffer): boolean {
  const link = Buffer.concat([Buffer.from(path), Buffer.from('.link')])
  try {
    linkSync(path, link)
    unlinkSync(link)
    return true
  } catch (error) {
    return !isWithoutLinks(error)
  }
}

function isSameFile(a: Stats, b: Stats): boolean {
  return a.ino === b.ino && a.dev === b.dev
}

function isClaim(found: Stats): boolean {
  return found.isFile() && found.size === 0 && found.uid === process.getuid?.() && (found.mode & 0o777) === 0o600
}

function statAt(path: string | Buffer): Stats | undefined {
  try {
    return lstatSync(path)
  } catch (error) {
    if (isAbsent(error)) return undefined
    throw error
  }
}
