import { type Dirent, readdirSync, type Stats } from 'node:fs'
import { join } from 'node:path'
import { isAbsent, lstatIfPresentSync } from '../../files/trees/tree-walk.ts'
import { type Layout, renameProbePath } from '../layout.ts'
import { nameUser, otherWriters, quote } from './permissions.ts'
import { findExposureOf } from './private-directory.ts'
import { UntouchableHostError } from './untouchable-host.ts'

/**
 * The number of times that a folder is listed before it is refused. Another run may just have created a second name for
 * a file, and may not have removed the first name yet.
 */
const MAX_LISTINGS = 5

/** `.hub-deploy/` of a project root, and the uid that it must belong to. */
export interface OwnFolder {
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
export function requireOwnFolder(folder: OwnFolder): void {
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
        `${own} has mode ${modeOf(found)} instead of 0700, so other users could reach the records that this action obeys: look in it for anything that you cannot explain, above all in journal.jsonl, then run chmod -R go-w ${own} && chmod 700 ${own}.`,
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
    return `belongs to ${nameUser(stat.uid)}, but this runner runs as ${nameUser(us)}: find out who put it there, and remove it, or make ${nameUser(us)} its owner with chown.`
  const writers = otherWriters(stat)
  if (writers.length === 0) return undefined
  return `can be written by ${writers.join(' and ')}: look in it for anything that you cannot explain, then run chmod -R go-w ${quote(layout.own)}.`
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
  const shelves = list(snapshots).filter(entry => entry.isDirectory() && entry.name !== 'set-aside')
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
