import { randomUUID } from 'node:crypto'
import { linkSync, lstatSync, renameSync, rmdirSync, unlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { z } from 'zod/mini'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { makeOpenDirectorySync, makePrivateDirectories, syncDirectory } from '../files/durable-files.ts'
import { isAbsent, lstatIfPresentSync, pathExistsSync } from '../files/tree-walk.ts'
import type { Place } from '../host/layout.ts'
import {
  isMove,
  movablePathSchema,
  settingsPathSchema,
  shelfPathSchema,
  stagedBy,
  stagedPathSchema,
} from './change-paths.ts'

/** Where an undo puts what another process has made in the way of the old version; relative to the root. */
const SET_ASIDE = join('.hub-deploy', 'snapshots', 'set-aside')
const MAX_ATTEMPTS = 20

/**
 * The changes that a deployment makes outside its staging folder, as data: what the journal announces and what an undo
 * needs to know. Paths are relative to the project root, and lie where such a change may happen.
 */
export const changeSchema = z.lazy(() =>
  z.discriminatedUnion('type', [
    z.object({ type: z.literal('make_directory'), path: shelfPathSchema }),
    z
      .object({
        type: z.literal('move'),
        from: movablePathSchema,
        to: movablePathSchema,
        /** Inode of what is moved, which distinguishes it from anything else at the other path. */
        ino: z.string().check(z.regex(/^[0-9]{1,20}$/)),
      })
      .check(z.refine(isMove, { error: 'is not a move that a deployment makes' })),
    /** A second name for a complete staged file, whose first name stays in staging as proof that the file is ours. */
    z.object({ type: z.literal('create_file'), staged: stagedPathSchema, path: settingsPathSchema }),
  ]),
)
export type Change = z.infer<typeof changeSchema>
export type Move = Extract<Change, { type: 'move' }>

/** A change that is still to be announced: the inode is read then. */
export type PlannedChange = Exclude<Change, Move> | Omit<Move, 'ino'>

/** Whether what the change takes from or puts into a staging folder is in that of this deployment. */
export function isOfDeployment(change: Change, deploymentId: string): boolean {
  const paths = change.type === 'move' ? [change.from, change.to] : change.type === 'create_file' ? [change.staged] : []
  return paths.every(path => [undefined, deploymentId].includes(stagedBy(path)))
}

/** The places out of which or into which changes move a tree, each once. */
export function placesIn(changes: readonly Change[]): Place[] {
  const paths = changes.flatMap(change => (change.type === 'move' ? [change.from, change.to] : []))
  return [...new Set(paths)].flatMap(path => {
    const [shelf, id, ...deeper] = path.split('/')
    const isPlace = (shelf === 'plugins' || shelf === 'extensions') && id !== undefined && deeper.length === 0
    return isPlace ? [{ shelf, id }] : []
  })
}

/**
 * A change as it is announced: with the identity of what it moves. Throws DeploymentError `step_failed` when its source
 * is missing or its target is taken: after a change that was never possible, an undo might move the host's own files.
 */
export function announceable(root: string, change: PlannedChange): Change {
  const target = change.type === 'move' ? change.to : change.path
  if (pathExistsSync(join(root, target))) throw taken(target)
  if (change.type !== 'move') return change
  const ino = inodeOf(join(root, change.from))
  if (ino === null)
    throw new DeploymentError(
      'step_failed',
      `${change.from} has just disappeared: another process works in this directory. Stop that process and run again.`,
    )
  return { ...change, ino }
}

/** Makes a change and makes it durable. Never replaces anything that is there. */
export async function applyChange(root: string, change: PlannedChange): Promise<void> {
  switch (change.type) {
    case 'make_directory':
      makeOpenDirectorySync(join(root, change.path))
      return await syncDirectory(dirname(join(root, change.path)))
    case 'move':
      return await moveDurably(root, change)
    case 'create_file':
      linkSync(join(root, change.staged), join(root, change.path))
      return await syncDirectory(dirname(join(root, change.path)))
  }
}

export interface Undone {
  /** Whether the change had been made and is now undone; a directory that was only made does not count. */
  wasMade: boolean
  /** Where this undo put another process's files that were in the way. */
  setAside: readonly string[]
}

/**
 * Undoes a change, whether it was made, half made or not made at all, any number of times. Sets aside, and never
 * removes, what another process has put there in the meantime. Throws when what was moved is at neither path.
 */
export async function undoChange(root: string, change: Change): Promise<Undone> {
  switch (change.type) {
    case 'make_directory':
      await removeIfEmpty(join(root, change.path))
      return { wasMade: false, setAside: [] }
    case 'move':
      return await moveBack(root, change)
    case 'create_file':
      return { wasMade: await removeIfOurs(join(root, change.staged), join(root, change.path)), setAside: [] }
  }
}

/** Whether a change was certainly not made, or is certainly undone: what it moves is where it was. */
export function isBack(root: string, change: Change): boolean {
  return change.type === 'move' && inodeOf(join(root, change.from)) === change.ino
}

/** Whether the host differs from what it was before this change; a directory that was only made does not count. */
export function isMade(root: string, change: Change): boolean {
  switch (change.type) {
    case 'make_directory':
      return false
    case 'move':
      return !isBack(root, change)
    case 'create_file':
      return isOurs(join(root, change.staged), join(root, change.path))
  }
}

/** A change in words, for an operator who has to undo it by hand. */
export function describeChange(change: Change): string {
  switch (change.type) {
    case 'make_directory':
      return `the directory ${change.path} was made`
    case 'move':
      return `${change.from} was moved to ${change.to}`
    case 'create_file':
      return `${change.path} was created`
  }
}

async function moveDurably(root: string, { from, to }: Pick<Move, 'from' | 'to'>): Promise<void> {
  if (pathExistsSync(join(root, to))) throw taken(to)
  renameSync(join(root, from), join(root, to))
  await syncMove(root, { from, to })
}

async function syncMove(root: string, { from, to }: Pick<Move, 'from' | 'to'>): Promise<void> {
  const folders = new Set([dirname(join(root, to)), dirname(join(root, from))])
  for (const folder of folders) await syncDirectory(folder)
}

/** Moves back the inode that was announced, and nothing else; what is back already is done. */
async function moveBack(root: string, move: Move): Promise<Undone> {
  const [before, after] = [join(root, move.from), join(root, move.to)]
  const [inoBefore, inoAfter] = [inodeOf(before), inodeOf(after)]
  if (inoBefore === move.ino || (inoAfter === null && inoBefore !== null)) return { wasMade: false, setAside: [] }
  const isReplaced = inoBefore === null && inoAfter !== null && stagedBy(move.to) !== undefined
  if (inoAfter !== move.ino && !isReplaced) return withoutItsTree(move)
  const setAside = await moveBackOver(root, move)
  await syncMove(root, { from: move.to, to: move.from })
  return { wasMade: true, setAside }
}

/** Nobody misses the new version's own tree; everything else that was moved belongs to the host. */
function withoutItsTree({ from, to }: Move): Undone {
  if (stagedBy(from) !== undefined) return { wasMade: true, setAside: [] }
  throw new Error(`what was moved from ${from} to ${to} is at neither path`)
}

/**
 * Another process, perhaps the old version itself, may make something where the old version belongs, as often as it is
 * set aside: the two renames follow each other at once.
 */
async function moveBackOver(root: string, { from, to }: Move): Promise<string[]> {
  const setAside: string[] = []
  if (pathExistsSync(join(root, from))) await makePrivateDirectories(join(root, SET_ASIDE))
  for (let attempt = 1; ; attempt++) {
    try {
      if (pathExistsSync(join(root, from))) setAside.push(putAsideSync(root, from))
      renameSync(join(root, to), join(root, from))
      return setAside
    } catch (error) {
      if (attempt === MAX_ATTEMPTS || !isTaken(error)) throw error
      await makePrivateDirectories(join(root, SET_ASIDE))
    }
  }
}

function putAsideSync(root: string, path: string): string {
  const name = `${Date.now()}-${randomUUID().slice(0, 8)}-${path.replaceAll('/', '_').slice(-100)}`
  renameSync(join(root, path), join(root, SET_ASIDE, name))
  return `${SET_ASIDE}/${name}`
}

function isTaken(error: unknown): boolean {
  return ['ENOTEMPTY', 'EEXIST', 'ENOTDIR', 'EISDIR', 'ENOENT'].includes(errnoOf(error) ?? '')
}

function inodeOf(path: string): string | null {
  try {
    return String(lstatSync(path, { bigint: true }).ino)
  } catch (error) {
    if (isAbsent(error)) return null
    throw error
  }
}

function taken(path: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `${path} has just appeared: another process writes in this directory. Stop that process and run again.`,
  )
}

async function removeIfOurs(staged: string, path: string): Promise<boolean> {
  if (!isOurs(staged, path)) return false
  unlinkSync(path)
  await syncDirectory(dirname(path))
  return true
}

function isOurs(staged: string, path: string): boolean {
  const [ours, there] = [lstatIfPresentSync(staged), lstatIfPresentSync(path)]
  return ours !== undefined && there !== undefined && ours.ino === there.ino && ours.dev === there.dev
}

/** An empty directory that stays harms nobody, so nothing fails because of it. */
async function removeIfEmpty(path: string): Promise<void> {
  try {
    rmdirSync(path)
    await syncDirectory(dirname(path))
  } catch {
    // It is in use, is gone, or stays.
  }
}
