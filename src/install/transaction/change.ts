import { linkSync, lstatSync, renameSync, rmdirSync, unlinkSync } from 'node:fs'
import { dirname, isAbsolute, join, normalize } from 'node:path'
import { z } from 'zod/mini'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { makeOpenDirectorySync, makePrivateDirectories, syncDirectory } from '../files/durable-files.ts'
import { isAbsent, lstatIfPresentSync, pathExistsSync } from '../files/tree-walk.ts'
import type { Place } from '../host/layout.ts'

/**
 * The changes that a deployment makes outside its staging folder, as data: what the journal announces and what an undo
 * needs to know. Paths are relative to the project root.
 */
export const relativePathSchema = z.lazy(() =>
  z.string().check(z.refine(isInside, { error: 'must stay below the project root' })),
)
export const changeSchema = z.lazy(() =>
  z.discriminatedUnion('type', [
    z.object({ type: z.literal('make_directory'), path: relativePathSchema }),
    z.object({
      type: z.literal('move'),
      from: relativePathSchema,
      to: relativePathSchema,
      /** Inode of what is moved, which distinguishes it from anything else at the other path. */
      ino: z.optional(z.string()),
    }),
    /** A second name for a complete staged file, whose first name stays in staging as proof that the file is ours. */
    z.object({ type: z.literal('create_file'), staged: relativePathSchema, path: relativePathSchema }),
  ]),
)
export type Change = z.infer<typeof changeSchema>

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
export function announceable(root: string, change: Change): Change {
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
export async function applyChange(root: string, change: Change): Promise<void> {
  switch (change.type) {
    case 'make_directory':
      makeOpenDirectorySync(join(root, change.path))
      return await syncDirectory(dirname(join(root, change.path)))
    case 'move':
      return await moveDurably(join(root, change.from), join(root, change.to))
    case 'create_file':
      linkSync(join(root, change.staged), join(root, change.path))
      return await syncDirectory(dirname(join(root, change.path)))
  }
}

export interface Undone {
  /** Whether the change had been made and is now undone; a directory that was only made does not count. */
  wasMade: boolean
  /** Where this undo put another process's files that were in the way. */
  setAside: string | null
}

/**
 * Undoes a change, whether it was made, half made or not made at all, any number of times. Sets aside, and never
 * removes, what another process has put there in the meantime. Throws when what was moved is at neither path.
 */
export async function undoChange(root: string, change: Change): Promise<Undone> {
  switch (change.type) {
    case 'make_directory':
      await removeIfEmpty(join(root, change.path))
      return { wasMade: false, setAside: null }
    case 'move':
      return await moveBack(root, change)
    case 'create_file':
      return { wasMade: await removeIfOurs(join(root, change.staged), join(root, change.path)), setAside: null }
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

async function moveDurably(from: string, to: string): Promise<void> {
  if (pathExistsSync(to)) throw taken(to)
  renameSync(from, to)
  await syncDirectory(dirname(to))
  if (dirname(from) !== dirname(to)) await syncDirectory(dirname(from))
}

async function moveBack(root: string, change: Extract<Change, { type: 'move' }>): Promise<Undone> {
  const [before, after] = [join(root, change.from), join(root, change.to)]
  const [inoBefore, inoAfter] = [inodeOf(before), inodeOf(after)]
  if (inoBefore === null && inoAfter === null) {
    throw new Error(`what was moved from ${change.from} to ${change.to} is at neither path`)
  }
  if (inoAfter === null || inoBefore === change.ino) return { wasMade: false, setAside: null }
  const setAside = inoBefore === null ? null : await putAside(root, change.from)
  await moveDurably(after, before)
  return { wasMade: true, setAside }
}

/** Another process, perhaps the old version itself, made something where the old version belongs. */
async function putAside(root: string, path: string): Promise<string> {
  const aside = join('.hub-deploy', 'snapshots', 'set-aside', `${Date.now()}-${path.replaceAll('/', '_').slice(-100)}`)
  await makePrivateDirectories(dirname(join(root, aside)))
  await moveDurably(join(root, path), join(root, aside))
  return aside
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
  const [ours, there] = [lstatIfPresentSync(staged), lstatIfPresentSync(path)]
  if (ours === undefined || there === undefined || ours.ino !== there.ino || ours.dev !== there.dev) return false
  unlinkSync(path)
  await syncDirectory(dirname(path))
  return true
}

async function removeIfEmpty(path: string): Promise<void> {
  try {
    rmdirSync(path)
    await syncDirectory(dirname(path))
  } catch (error) {
    const inUse = ['ENOTEMPTY', 'EEXIST'].includes(errnoOf(error) ?? '')
    if (!isAbsent(error) && !inUse) throw error
  }
}

function isInside(path: string): boolean {
  return !isAbsolute(path) && normalize(path) === path && path.split('/').every(part => !['', '.', '..'].includes(part))
}
