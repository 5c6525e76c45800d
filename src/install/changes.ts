import { link, rename, rmdir, unlink } from 'node:fs/promises'
import { dirname, isAbsolute, join, normalize } from 'node:path'
import { z } from 'zod'
import { errnoOf } from '../core/errors.ts'
import { makeOpenDirectory, syncDirectory } from './durable-files.ts'
import { exists, isAbsent, statOf } from './tree-walk.ts'

/**
 * The changes that a deployment makes outside its staging folder, as data: what the journal announces and what an undo
 * needs to know. Paths are relative to the project root.
 */
export const relativePathSchema = z.string().refine(isInside, { error: 'must stay below the project root' })
export const changeSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('make_directory'), path: relativePathSchema }),
  z.object({ type: z.literal('move'), from: relativePathSchema, to: relativePathSchema }),
  /** A second name for a complete staged file, which stays in staging as the proof that the file is ours. */
  z.object({ type: z.literal('create_file'), staged: relativePathSchema, path: relativePathSchema }),
])
export type Change = z.infer<typeof changeSchema>

/**
 * Throws when a change cannot be made because its source is missing or its target is taken. Asked before the change is
 * announced: an undo of what was never possible could not tell the host's own things from ours.
 */
export async function requirePossible(root: string, change: Change): Promise<void> {
  const target = change.type === 'move' ? change.to : change.path
  if (await exists(join(root, target))) throw new Error(`${target} exists already`)
  if (change.type === 'move' && !(await exists(join(root, change.from))))
    throw new Error(`${change.from} does not exist`)
}

/** Makes a change and makes it durable. Never replaces anything that is there. */
export async function applyChange(root: string, change: Change): Promise<void> {
  switch (change.type) {
    case 'make_directory':
      await makeOpenDirectory(join(root, change.path))
      return syncDirectory(dirname(join(root, change.path)))
    case 'move':
      return moveDurably(join(root, change.from), join(root, change.to))
    case 'create_file':
      await link(join(root, change.staged), join(root, change.path))
      return syncDirectory(dirname(join(root, change.path)))
  }
}

/**
 * Takes a change back, whether it was made, half made or not made at all, and any number of times. Returns whether what
 * the host runs had been changed and is now back; a directory that was only made does not count.
 * Throws when what is found fits neither the state before nor the state after the change.
 */
export async function undoChange(root: string, change: Change): Promise<boolean> {
  switch (change.type) {
    case 'make_directory':
      await removeIfEmpty(join(root, change.path))
      return false
    case 'move':
      return moveBack(root, change.from, change.to)
    case 'create_file':
      return removeIfOurs(join(root, change.staged), join(root, change.path))
  }
}

/** One sentence on a change, for an operator who has to see to it by hand. */
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
  if (await exists(to)) throw new Error(`${to} exists already`)
  await rename(from, to)
  await syncDirectory(dirname(to))
  if (dirname(from) !== dirname(to)) await syncDirectory(dirname(from))
}

async function moveBack(root: string, from: string, to: string): Promise<boolean> {
  const [before, after] = [join(root, from), join(root, to)]
  const [isBefore, isAfter] = [await exists(before), await exists(after)]
  if (isBefore && !isAfter) return false
  if (isBefore && isAfter) throw new Error(`both ${from} and ${to} exist, so ${to} cannot be moved back`)
  if (!isAfter) throw new Error(`neither ${from} nor ${to} exists`)
  await moveDurably(after, before)
  return true
}

async function removeIfOurs(staged: string, path: string): Promise<boolean> {
  const [ours, there] = [await statOf(staged), await statOf(path)]
  if (ours === undefined || there === undefined || ours.ino !== there.ino || ours.dev !== there.dev) return false
  await unlink(path)
  await syncDirectory(dirname(path))
  return true
}

async function removeIfEmpty(path: string): Promise<void> {
  try {
    await rmdir(path)
    await syncDirectory(dirname(path))
  } catch (error) {
    const inUse = ['ENOTEMPTY', 'EEXIST'].includes(errnoOf(error) ?? '')
    if (!isAbsent(error) && !inUse) throw error
  }
}

function isInside(path: string): boolean {
  return !isAbsolute(path) && normalize(path) === path && path.split('/').every(part => !['', '.', '..'].includes(part))
}
