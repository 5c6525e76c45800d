import { randomUUID } from 'node:crypto'
import { renameSync } from 'node:fs'
import { join, relative } from 'node:path'
import { makePrivateDirectories } from '../../files/durable-files.ts'
import { type HeldPath, inodeOf, remakeFoldersSync, withEnds } from './held-path.ts'

/** Receives files that another process has put in the way; relative to the project root. */
const SET_ASIDE = join('.hub-deploy', 'snapshots', 'set-aside')

/** Moves away a file or tree that is in the way of a move. Returns its new path, relative to the root. */
export async function putAside(root: string, found: HeldPath): Promise<string[]> {
  await makePrivateDirectories(join(root, SET_ASIDE))
  return [putAsideSync(root, found)]
}

/**
 * Moves away the file or tree at a path relative to the root. Returns its new path, or no path if nothing was there.
 */
export async function putStrayAside(root: string, path: string): Promise<string[]> {
  await makePrivateDirectories(join(root, SET_ASIDE))
  return withEnds(root, { from: path, to: path }, ({ from }) =>
    inodeOf(from) === null ? [] : [putAsideSync(root, from)],
  )
}

/**
 * Recreates the folders of a path inside a tree, after another process has removed or replaced them. Returns the paths
 * to which the replacements were moved.
 */
export async function remakeFolders(root: string, path: string): Promise<string[]> {
  await makePrivateDirectories(join(root, SET_ASIDE))
  const setAside: string[] = []
  remakeFoldersSync(root, path, found => setAside.push(putAsideSync(root, found)))
  return setAside
}

/** Moves the file or tree to a name of at most 255 bytes: 60 UTF-16 units are at most 180 bytes. */
function putAsideSync(root: string, { path, at }: HeldPath): string {
  const name = relative(root, path).replaceAll('/', '_').slice(-60)
  const aside = `${SET_ASIDE}/${Date.now()}-${randomUUID().slice(0, 8)}-${name}`
  renameSync(at, join(root, aside))
  return aside
}
