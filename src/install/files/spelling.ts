import { readdirSync, type Stats } from 'node:fs'
import { basename, dirname } from 'node:path'
import { foldedKey } from '../../core/archive/planned-tree.ts'
import { lstatIfPresentSync } from './walk.ts'

/**
 * Some file systems find a name in other spellings: in upper or lower case, or in another Unicode form. Only the file
 * system knows which, so two spellings are the same path if they lead to the same inode. On other file systems, the
 * functions below look at no file before two spellings differ in case or form only.
 */

/**
 * True if two absolute paths are the same path, whether anything is there or not. If nothing is there, they are the
 * same if the file system would find one when it looks for the other. Does not follow a symlink at their end.
 */
export function isSamePath(path: string, other: string): boolean {
  if (path === other) return true
  if (foldedKey(path) !== foldedKey(other)) return false
  const [one, another] = [lstatIfPresentSync(path), lstatIfPresentSync(other)]
  if (one !== undefined || another !== undefined) return isSameItem(one, another)
  const isSameName = basename(path) === basename(other) || foldsNames(dirname(path))
  return isSameName && isSamePath(dirname(path), dirname(other))
}

/**
 * Returns the rest of an absolute path below a folder: empty for the folder itself, and undefined for a path outside.
 * Resolves no symlink, so the caller passes real paths.
 */
export function pathBelow(folder: string, path: string): string | undefined {
  if (path.startsWith(`${folder}/`)) return path.slice(folder.length + 1)
  const [parts, depth] = [path.split('/'), folder.split('/').length]
  const isInside = parts.length >= depth && isSamePath(parts.slice(0, depth).join('/'), folder)
  return isInside ? parts.slice(depth).join('/') : undefined
}

/**
 * Returns a path inside a tree as the directories of the tree list it, or the path itself if nothing is there. Asks for
 * one other spelling of each name, and lists a directory only if the file system finds that spelling, too.
 */
export function asListed(root: string, path: string): string {
  let at = root
  const listed = path.split('/').map(name => {
    const found = listedName(at, name)
    at = `${at}/${found}`
    return found
  })
  return listed.join('/')
}

/** Returns these paths, and those that a tree lists under another spelling also as they are listed. */
export function withListed(root: string, paths: readonly string[]): string[] {
  return [...new Set(paths.flatMap(path => [path, asListed(root, path)]))]
}

/**
 * True if the file system finds an existing entry of a directory in other spellings, too; undefined if the name has no
 * other spelling.
 */
export function isFoundOtherwise(directory: string, name: string): boolean | undefined {
  const others = otherSpellings(name)
  if (others.length === 0) return undefined
  const there = lstatOrNothing(`${directory}/${name}`)
  return there !== undefined && others.some(other => isSameItem(there, lstatOrNothing(`${directory}/${other}`)))
}

function listedName(directory: string, name: string): string {
  if (!isFoundOtherwise(directory, name)) return name
  const names = listOrNothing(directory)
  if (names.includes(name)) return name
  return names.find(other => isSamePath(`${directory}/${other}`, `${directory}/${name}`)) ?? name
}

/** True if a directory, or the nearest one above it that can show it, finds its entries in other spellings. */
function foldsNames(directory: string): boolean {
  for (const name of listOrNothing(directory)) {
    const isFolding = isFoundOtherwise(directory, name)
    if (isFolding !== undefined) return isFolding
  }
  return dirname(directory) !== directory && foldsNames(dirname(directory))
}

/** With the case of each ASCII letter changed, and in the other Unicode form; none for a name without either. */
function otherSpellings(name: string): string[] {
  const swapped = name.replace(/[a-z]/gi, letter => (letter < 'a' ? letter.toLowerCase() : letter.toUpperCase()))
  const composed = name.normalize('NFC')
  const spellings = [swapped, composed === name ? name.normalize('NFD') : composed]
  return spellings.filter(spelling => spelling !== name)
}

function isSameItem(one: Stats | undefined, other: Stats | undefined): boolean {
  return one !== undefined && other !== undefined && one.ino === other.ino && one.dev === other.dev
}

/** A spelling that cannot be looked up, for example because it is too long, shows nothing. */
function lstatOrNothing(path: string): Stats | undefined {
  try {
    return lstatIfPresentSync(path)
  } catch {
    return undefined
  }
}

function listOrNothing(directory: string): string[] {
  try {
    return readdirSync(directory)
  } catch {
    return []
  }
}
