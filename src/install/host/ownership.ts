import { type Dirent, readdirSync, type Stats } from 'node:fs'
import { basename, join } from 'node:path'
import { DeploymentError, type ErrorCode, type ErrorOptions } from '../../core/errors.ts'
import { DEFAULT_PLUGINS_DIRECTORY, EXTENSIONS_DIRECTORY } from '../../core/identifiers.ts'
import { asSentence } from '../../core/text.ts'
import { toHostError } from '../files/errors.ts'
import { pathBelow } from '../files/spelling.ts'
import { isAbsent, lstatIfPresentSync } from '../files/walk.ts'
import { auditPath, type Layout, placeOf, renameProbePath, reservePath, SET_ASIDE } from './layout.ts'
import {
  type Decider,
  decidersOf,
  findExposureOf,
  isSticky,
  nameUser,
  otherWriters,
  quote,
  walkPath,
} from './permissions.ts'
import { readInstalled } from './record.ts'

const USUAL_DIRECTORIES: readonly string[] = [DEFAULT_PLUGINS_DIRECTORY, EXTENSIONS_DIRECTORY]

/** A project root, and whether the operator accepts a root that others own or can write to. */
export interface HostAccess {
  readonly layout: Layout
  readonly sharedRoot: SharedRoot
}

interface SharedRoot {
  readonly isAllowed: boolean
  /** The name that messages use for the option that allows a shared root. Default: `allow-shared-root`. */
  readonly option?: string
}

/**
 * Checks that only the runner's user and root could have written the files that a run trusts below the project root.
 * The root, its shelves, and every directory and symlink on the way to them must belong to one of these two users, and
 * nobody else may be able to write there. A symlink by which a shelf leads out of the root must belong to root.
 * `.hub-deploy/` must pass `requireOwnFolder`. A missing path passes. Reads names, owners and modes, and then, from
 * `installed.json`, the directories of plugins.
 *
 * Returns one sentence for each path that the operator accepts although others own it or can write to it.
 *
 * Throws UntouchableHostError `unsafe_host`, which says what is unsafe and how to fix it. If the host could not be
 * checked, throws UntouchableHostError with the code and message of the error that prevented the check.
 */
export function requireSafeHost(access: HostAccess): string[] {
  return checking(access, us => {
    const usual = requireTrusted(access, { us, directories: USUAL_DIRECTORIES })
    requireOwnFolder({ layout: access.layout, us })
    const recorded = requireTrusted(access, { us, directories: unusualDirectories(access.layout) })
    return [...new Set([...usual, ...recorded])]
  })
}

/**
 * Checks one more directory of plugins, given relative to the root, and everything on the way there, as
 * `requireSafeHost` does. Leaves out the sentences about the root and its usual directories. Throws
 * UntouchableHostError.
 */
export function requireSafeDirectory(access: HostAccess, directory: string): string[] {
  return checking(access, us => {
    const found = requireTrusted(access, { us, directories: [directory] })
    const usual = new Set(requireTrusted(access, { us, directories: USUAL_DIRECTORIES }))
    return found.filter(sentence => !usual.has(sentence))
  })
}

/**
 * Does the same as `requireSafeDirectory` in a deployment that has begun on a safe host. Throws DeploymentError
 * instead, with the same code, because the end of that deployment is reported.
 */
export function requireSafeDestination(access: HostAccess, directory: string): string[] {
  try {
    return requireSafeDirectory(access, directory)
  } catch (error) {
    if (!(error instanceof UntouchableHostError)) throw error
    throw new DeploymentError(error.code, `${error.reason} Nothing was installed or moved.`, { cause: error })
  }
}

function checking(access: HostAccess, check: (us: number) => string[]): string[] {
  const us = process.getuid?.()
  if (us === undefined) return []
  try {
    return check(us)
  } catch (error) {
    if (error instanceof UntouchableHostError) throw error
    const { code, message } = toHostError(error, `checking who can write to ${access.layout.root}`)
    throw new UntouchableHostError(code, message, { cause: error })
  }
}

/** Directories below the root, and the uid that they must belong to. */
interface Trusted {
  readonly us: number
  readonly directories: readonly string[]
}

function requireTrusted(access: HostAccess, trusted: Trusted): string[] {
  const { layout, sharedRoot } = access
  const exposures = findExposures(layout.root, trusted)
  const refused = sharedRoot.isAllowed ? exposures.filter(({ isPlantable }) => isPlantable) : exposures
  const option = sharedRoot.option ?? 'allow-shared-root'
  if (refused.length > 0) throw writable(refused, { us: trusted.us, option })
  return exposures.map(
    exposure => `${describeExposure(exposure)}. ${option} accepts that, so these users decide what runs here.`,
  )
}

/**
 * Returns the directories of plugins in our own record, except the usual ones. If the record cannot be read, returns
 * none, because no run uses those directories in that case.
 */
function unusualDirectories(layout: Layout): string[] {
  try {
    const directories = readInstalled(layout).map(row => placeOf(row).directory)
    return [...new Set(directories)].filter(directory => !USUAL_DIRECTORIES.includes(directory))
  } catch {
    return []
  }
}

/** Returns each exposed path once, with those of the root first. */
function findExposures(root: string, { us, directories }: Trusted): Exposure[] {
  const found = new Map<string, Exposure>()
  if (directories.length === 0) return []
  const inside = walkPath(root).end?.path ?? root
  for (const start of [root, ...directories.map(directory => join(root, directory))]) {
    for (const decider of decidersOf(start, us)) {
      const exposure = exposureOf(decider, us)
      if (exposure === undefined || found.has(exposure.path)) continue
      const isPublic = exposure.isPublic && !pathBelow(inside, exposure.path)
      found.set(exposure.path, { ...exposure, isPublic, isPlantable: start !== root && decider.stat.isSymbolicLink() })
    }
    for (const exposure of findOwnLinks(start, { us, inside })) found.set(exposure.path, exposure)
  }
  return [...found.values()]
}

/**
 * If a path below the root leads out of the root, returns the symlinks of this user that lead there. A service that
 * runs as this user, but may write only below the root, could have made them. Root's symlinks pass. If this user is
 * root, nothing distinguishes an operator's symlinks from those of such a service.
 */
function findOwnLinks(path: string, { us, inside }: { us: number; inside: string }): Exposure[] {
  const { way, end } = walkPath(path)
  const last = end ?? way.at(-1)
  if (us === 0 || last === undefined || `${last.path}/`.startsWith(inside)) return []
  const links = way.filter(({ path, stat }) => stat.isSymbolicLink() && stat.uid === us && path.startsWith(inside))
  const who = `every service that runs as ${nameUser(us)}, and leads out of project-root`
  return links.map(({ path }) => {
    return { path, who, fix: `chown -h root ${quote(path)}`, isPublic: false, isPlantable: false }
  })
}

/**
 * The number of times that a folder is listed before it is refused. Another run may just have created a second name for
 * a file, and may not have removed the first name yet.
 */
const MAX_LISTINGS = 5

/** `.hub-deploy/` of a project root, and the uid that it must belong to. */
interface OwnFolder {
  readonly layout: Layout
  readonly us: number
}

/**
 * Checks that `.hub-deploy/` is a real directory of this user, to which no other user has access. Every name in it that
 * a run relies on must be a real directory or a regular file of this user, which nobody else can write to. A file must
 * have no name elsewhere. Does not check the contents of staged trees and snapshots, which belong to the owner of the
 * installed files. A missing folder passes. Does not tighten permissions, because somebody may already have used the
 * open ones.
 *
 * Throws UntouchableHostError `unsafe_host`.
 */
function requireOwnFolder(folder: OwnFolder): void {
  const { own, snapshots, trees, outbox, reports } = folder.layout
  const found = lstatIfPresentSync(own)
  if (found === undefined) return
  requirePrivateDirectory(folder, found)
  // `.hub-deploy/` itself comes first: once it is known to be ours, the folders in it can no longer become symlinks.
  requireOwnEntries(folder, own)
  for (const path of [trees, outbox, renameProbePath(folder.layout), snapshots, ...shelvesIn(snapshots)])
    requireOwnEntries(folder, path)
  requireRealFiles(folder, reports)
}

function requirePrivateDirectory({ layout, us }: OwnFolder, found: Stats): void {
  const own = quote(layout.own)
  switch (findExposureOf(found, us)) {
    case 'type':
      throw unsafe(
        `${own} is ${typeOf(found)}, but this action keeps its records in a directory of that name: find out who made it, and move it away.`,
      )
    case 'owner':
      throw unsafe(
        `${own} belongs to ${nameUser(found.uid)}, but this runner runs as ${nameUser(us)} and would obey the records in it: deploy to this project root as one user only, or, if somebody planted ${own}, move it away.`,
      )
    case 'mode':
      throw unsafe(
        `${own} has mode ${modeOf(found)} instead of 0700, so other users could reach the records that this action obeys: run chmod -R go-w ${own}; ${reviewOf(own)}; then run chmod 700 ${own}.`,
      )
    case undefined:
      return
  }
}

/**
 * Checks every name in a folder. Lists the folder again before refusing it, because entries may change while another
 * run works.
 */
function requireOwnEntries(folder: OwnFolder, path: string): void {
  for (let listing = 1; ; listing++) {
    const problem = findForeignEntry(folder, path)
    if (problem === undefined) return
    if (listing === MAX_LISTINGS)
      throw unsafe(`${problem} Only this action's own files and directories may be below ${quote(folder.layout.own)}.`)
  }
}

function findForeignEntry(folder: OwnFolder, path: string): string | undefined {
  const entries = list(path).flatMap(({ name }) => entryAt(`${path}/${name}`))
  const names = Map.groupBy(entries, ({ stat }) => stat.ino)
  for (const { path, stat } of entries) {
    const problem = problemOf(folder, stat) ?? linkProblem(stat, names.get(stat.ino)?.length)
    if (problem !== undefined) return `${quote(path)} ${problem}`
  }
  return undefined
}

function entryAt(path: string): { path: string; stat: Stats }[] {
  const stat = lstatIfPresentSync(path)
  return stat === undefined ? [] : [{ path, stat }]
}

function problemOf({ layout, us }: OwnFolder, stat: Stats): string | undefined {
  if (!stat.isDirectory() && !stat.isFile()) return `is ${typeOf(stat)}: find out who made it, and remove it.`
  if (stat.uid !== us)
    return `belongs to ${nameUser(stat.uid)}, but this runner runs as ${nameUser(us)}: find out who put it there, and remove it, or make ${nameUser(us)} its owner with chown -h.`
  const writers = otherWriters(stat)
  if (writers.length === 0) return undefined
  const own = quote(layout.own)
  return `can be written by ${writers.join(' and ')}: ${reviewOf(own)}; then run chmod -R go-w ${own}.`
}

/** What comes before the folder is closed for good, because the next run obeys it then. */
function reviewOf(own: string): string {
  return `end the processes of other users that hold files in it open, which no chmod closes (lsof +D ${own}); look in it for anything that you cannot explain, above all in journal.jsonl`
}

/** A file of ours may have a second name, for an instant or until the next run; that name is in the same folder. */
function linkProblem(stat: Stats, namesHere = 1): string | undefined {
  if (!stat.isFile() || stat.nlink <= namesHere) return undefined
  return `is a file that has another name elsewhere (a hard link): look for that name on the same file system with find -inum ${stat.ino}, and remove the name that should not exist.`
}

/** Checks only types, because there are many reports and none decides what a run installs, moves or starts. */
function requireRealFiles({ layout }: OwnFolder, path: string): void {
  const strange = list(path).find(entry => !entry.isFile() && !entry.isDirectory())
  if (strange === undefined) return
  throw unsafe(
    `${quote(join(path, strange.name))} is ${typeOf(strange)}: find out who made it, and remove it. Only this action's own files and directories may be below ${quote(layout.own)}.`,
  )
}

/** Leaves out `set-aside`, which contains files for the operator that no run uses. */
function shelvesIn(snapshots: string): string[] {
  const shelves = list(snapshots).filter(entry => entry.isDirectory() && entry.name !== basename(SET_ASIDE))
  return shelves.map(({ name }) => join(snapshots, name))
}

function list(path: string): Dirent[] {
  try {
    return readdirSync(path, { withFileTypes: true })
  } catch (error) {
    if (isAbsent(error)) return []
    throw error
  }
}

function typeOf(entry: Stats | Dirent): string {
  if (entry.isSymbolicLink()) return 'a symlink'
  return entry.isFile() ? 'a file' : 'a device, pipe or socket'
}

function modeOf({ mode }: Stats): string {
  return (mode & 0o7777).toString(8).padStart(4, '0')
}

function unsafe(message: string): UntouchableHostError {
  return new UntouchableHostError('unsafe_host', message)
}

/**
 * Checks that each directory or file with a fixed name in `.hub-deploy/`, except the kernel lock, is a directory or a
 * regular file, as this action created it. A missing path passes. Throws DeploymentError `host_not_writable`, which
 * names the obstructing path and says what to do.
 */
export function requireOwnKinds(layout: Layout): void {
  const { staging, trash, snapshots, trees, reports, outbox, lock, journal, installed } = layout
  for (const path of [staging, trash, renameProbePath(layout), snapshots, trees, reports, outbox])
    requireOwnDirectory(path)
  for (const shelf of ['plugins', 'extensions', basename(SET_ASIDE)]) requireOwnDirectory(join(snapshots, shelf))
  for (const path of [lock, journal, installed, auditPath(layout), reservePath(layout)]) {
    if (lstatIfPresentSync(path)?.isFile() === false) throw inTheWay(path, 'a file')
  }
}

/** Does the same as `requireOwnKinds` for one directory. */
export function requireOwnDirectory(path: string): void {
  if (lstatIfPresentSync(path)?.isDirectory() === false) throw inTheWay(path, 'a directory')
}

function inTheWay(path: string, expected: string): DeploymentError {
  return new DeploymentError(
    'host_not_writable',
    `${path} must be ${expected} of this action, but something else is in its place. Move that away, restore ${path} if you have a copy, and run again.`,
  )
}

/** A directory or symlink that others own or can write to. */
interface Exposure {
  readonly path: string
  readonly who: string
  readonly fix: string
  /**
   * Whether the directory is meant for all users, as /tmp is, and is not a part of the project root. Closing such a
   * directory would break other programs.
   */
  readonly isPublic: boolean
  /**
   * Whether this is another user's symlink on the way to a shelf. It could lead into any directory of ours, so it is
   * never accepted.
   */
  readonly isPlantable: boolean
}

/**
 * Returns which users other than root and this one own or can write to a path, and the fix. Returns undefined if there
 * are no such users.
 */
function exposureOf({ path, stat, isForeign, isOpen }: Decider, us: number) {
  if (!isForeign && !isOpen) return undefined
  const writers = isOpen ? otherWriters(stat) : []
  const fixes = [isForeign ? [`chown -h ${us} ${quote(path)}`] : [], isOpen ? [`chmod go-w ${quote(path)}`] : []]
  return {
    path,
    who: [...(isForeign ? [nameUser(stat.uid)] : []), ...writers].join(' and '),
    fix: fixes.flat().join(' && '),
    isPublic: isOpen && isSticky(stat),
  }
}

/** Names the path and the users who can write or replace it. */
function describeExposure({ path, who }: Exposure): string {
  return `${quote(path)} can be written or replaced by ${who}`
}

/** Returns the error that names every exposure and says how to close it. */
function writable(
  exposures: readonly Exposure[],
  { us, option }: { us: number; option: string },
): UntouchableHostError {
  const found = exposures.map(describeExposure).join(', and ')
  const deciders = us === 0 ? 'root (0)' : `root and ${nameUser(us)}`
  return new UntouchableHostError(
    'unsafe_host',
    `Only ${deciders}, the user of this runner, may decide what is in project-root, but ${found}: ${describeRemedy(exposures, option)}.`,
  )
}

function describeRemedy(exposures: readonly Exposure[], option: string): string {
  const choice = exposures.some(({ isPlantable }) => isPlantable) ? '' : `, or set ${option} if you trust these users`
  const open = exposures.find(({ isPublic }) => isPublic)
  if (open !== undefined) return `${quote(open.path)} is meant for all users, so use a directory below it${choice}`
  return `run ${exposures.map(({ fix }) => fix).join(' && ')}${choice}`
}

/**
 * Refuses a host because another user may have written below the project root, or because this could not be ruled out.
 * In that case, nothing below the root may be read, written or run: no journal, lock, report, audit line or outbox. The
 * outputs and the report to the hub still state the result.
 */
export class UntouchableHostError extends DeploymentError {
  override readonly name: string = 'UntouchableHostError'

  /** The message without the sentence that nothing was changed. */
  readonly reason: string

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(code, `${asSentence(message)} No plugin or service below project-root was changed.`, options)
    this.reason = asSentence(message)
  }
}
