import { randomUUID } from 'node:crypto'
import { renameSync } from 'node:fs'
import { join, relative } from 'node:path'
import { makePrivateDirectories } from '../../files/durable-files.ts'
import { type HeldPath, inodeOf, remakeFoldersSync, withEnds } from './held-path.ts'

/** Receives files that another process has put in the way; relative to the project root. */
const SET_ASIDE = join('.hub-deploy', 'snapshots', 'set-aside')

/** Moves away what is in the way of a move. Returns where it is now. */
export async function putAside(root: string, found: HeldPath): Promise<string[]> {
  await makePrivateDirectories(join(root, SET_ASIDE))
  return [putAsideSync(root, found)]
}

/** Does the same with what is at a path relative to the root; returns nothing if nothing is there. */
export async function putStrayAside(root: string, path: string): Promise<string[]> {
  await makePrivateDirectories(join(root, SET_ASIDE))
  return withEnds(root, { from: path, to: path }, ({ from }) =>
    inodeOf(from) === null ? [] : [putAsideSync(root, from)],
  )
}

/**
 * Recreates the folders of a path inside a tree, after another process has removed or replaced them. Returns where the
 * replacements are now.
 */
export async function remakeFolders(root: string, path: string): Promise<string[]> {
  await makePrivateDirectories(join(root, SET_ASIDE))
  const setAside: string[] = []
  remakeFoldersSync(root, path, found => setAside.push(putAsideSync(root, found)))
  return setAside
}

/** A name of at most 255 bytes: 60 UTF-16 units are 180. */
function putAsideSync(root: string, { path, at }: HeldPath): string {
  const name = relative(root, path).replaceAll('/', '_').slice(-60)
  const aside = `${SET_ASIDE}/${Date.now()}-${randomUUID().slice(0, 8)}-${name}`
  renameSync(at, join(root, aside))
  return aside
}
