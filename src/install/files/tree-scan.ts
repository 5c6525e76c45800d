import { type BigIntStats, type Dirent, lstatSync, opendirSync, readdirSync, readlinkSync } from 'node:fs'
import { errnoOf } from '../../core/errors.ts'
import { comparePaths } from '../../core/trust/tree-digest.ts'
import { isAbsent, lstatIfPresentSync } from './tree-walk.ts'

/** A file, symlink or special file in a tree. */
export interface TreeItem {
  /** Relative to the tree's root. */
  readonly path: string
  /** The mode of a file in octal, such as `644`; `link` for a symlink, `other` for anything else. */
  readonly kind: string
  /** The size of a file in bytes, or the target of a symlink. */
  readonly content: string
}

export interface FoundItem extends TreeItem {
  /**
   * Inode, and when the item was last modified and changed, in nanoseconds. Every write, chmod or replacement of the
   * item changes this text; moving a directory around it does not.
   */
  readonly stamp: string
}

/** What a directory with some thousand entries takes at least: a larger one is not read at once. */
const MAX_BYTES_AT_ONCE = 64 * 1024
/** How many entries of a large directory are listed between two pauses. */
const LISTED_AT_ONCE = 2000
/** What Node reads in place of bytes that are not UTF-8: no path leads to a file with such a name. */
const UNREADABLE = '\ufffd'

/** What of a tree is scanned. */
export interface ScanRules {
  readonly isLeftOut: (path: string) => boolean
  /** Hears of every directory that is listed, `root` included, whose path is empty. */
  readonly onDirectory?: ((path: string) => void) | undefined
  /** Hears the stamp of everything below `root`, of a directory before it is listed. */
  readonly onStamp?: ((path: string, stamp: string) => void) | undefined
}

/**
 * Every file, symlink and special file below `root` in the order of a tree digest, without those that `isLeftOut`
 * names; directories are implied; one that cannot be listed counts as a special file. Follows no symlink, not even at
 * `root`: where that is no directory, there is none. An undefined item is a pause.
 */
export function* scanTree(
  root: string,
  { isLeftOut, onDirectory, onStamp }: ScanRules,
): Generator<FoundItem | undefined, undefined> {
  if (!lstatIfPresentSync(root)?.isDirectory()) return
  const top = yield* listDirectory(root, '')
  const open = top === undefined ? [] : [top]
  if (top !== undefined) onDirectory?.('')
  for (let listing = open.at(-1); listing !== undefined; listing = open.at(-1)) {
    const name = listing.names[listing.next++]
    if (name === undefined) {
      open.pop()
      continue
    }
    const path = listing.path === '' ? name : `${listing.path}/${name}`
    if (isLeftOut(path)) continue
    const isDirectory = listing.directories.has(name)
    if (isDirectory) onStamp?.(path, stampAt(`${root}/${path}`))
    const below = isDirectory ? yield* listDirectory(`${root}/${path}`, path) : undefined
    if (below === undefined) {
      const item = describeItemSync(root, path)
      if (!isDirectory) onStamp?.(path, item?.stamp ?? '')
      yield item
      continue
    }
    onDirectory?.(path)
    open.push(below)
  }
}

/**
 * Lists the directories that `scanTree` lists, and returns nothing: the first process that reads a directory has the file
 * system note the time in its journal, which waits while the file system is synced; the next one does not. Each item is
 * a pause.
 */
export function* touchDirectories(root: string, { isLeftOut }: ScanRules): Generator<undefined, undefined> {
  const open = lstatIfPresentSync(root)?.isDirectory() ? [''] : []
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    const listing = yield* listDirectory(`${root}/${path}`, path)
    for (const name of listing?.directories ?? []) {
      const inner = path === '' ? name : `${path}/${name}`
      if (!isLeftOut(inner)) open.push(inner)
    }
  }
}

/** Whether a system error says that this process cannot see what is at a path, which others may have arranged. */
export function isBarred(error: unknown): boolean {
  return ['EACCES', 'EPERM', 'ELOOP', 'ENAMETOOLONG'].includes(errnoOf(error) ?? '')
}

/** See `FoundItem`. */
export function stampOf({ ino, mtimeNs, ctimeNs }: BigIntStats): string {
  // A template would keep its parts as well, in three times the memory.
  return [ino, mtimeNs, ctimeNs].join('\t')
}

/** Empty where nothing is, or nothing that can be seen. */
function stampAt(path: string): string {
  try {
    return stampOf(lstatSync(path, { bigint: true }))
  } catch {
    return ''
  }
}

/** What is at a path; undefined where nothing is. The times of a directory, which change with its entries, do not count. */
export function describeItemSync(root: string, path: string): FoundItem | undefined {
  try {
    const at = `${root}/${path}`
    const stat = lstatSync(at, { bigint: true })
    const stamp = stat.isDirectory() ? '' : stampOf(stat)
    if (stat.isSymbolicLink()) return { path, kind: 'link', content: readlinkSync(at), stamp }
    if (!stat.isFile()) return { path, kind: 'other', content: '', stamp }
    return { path, kind: (Number(stat.mode) & 0o7777).toString(8), content: String(stat.size), stamp }
  } catch (error) {
    const isHidden = isBarred(error) || (isAbsent(error) && path.includes(UNREADABLE))
    if (isHidden) return { path, kind: 'other', content: '', stamp: '' }
    if (isAbsent(error)) return undefined
    throw error
  }
}

/** The entries of one directory, in order, and how many of them have been visited. */
interface Listing {
  readonly path: string
  readonly names: readonly string[]
  readonly directories: ReadonlySet<string>
  next: number
}

/** Undefined where no directory is, or none that can be listed. */
function* listDirectory(at: string, path: string): Generator<undefined, Listing | undefined> {
  const [names, directories] = [[] as string[], new Set<string>()]
  let hasSurrogates = false
  try {
    for (const entry of isSmall(at) ? readdirSync(at, { withFileTypes: true }) : readLarge(at)) {
      names.push(entry.name)
      hasSurrogates ||= /[\ud800-\udfff]/.test(entry.name)
      if (entry.isDirectory()) directories.add(entry.name)
      if (names.length % LISTED_AT_ONCE === 0) yield
    }
  } catch (error) {
    if (isAbsent(error) || isBarred(error)) return undefined
    throw error
  }
  yield
  // Without surrogates, code units have the order of code points, and sort ten times as fast.
  names.sort(hasSurrogates ? comparePaths : undefined)
  return { path, names, directories, next: 0 }
}

function isSmall(at: string): boolean {
  const stat = lstatIfPresentSync(at)
  return stat === undefined || stat.size <= MAX_BYTES_AT_ONCE
}

/** Takes twice as long for each entry. */
function* readLarge(at: string): Generator<Dirent, undefined> {
  const directory = opendirSync(at)
  try {
    for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) yield entry
  } finally {
    directory.closeSync()
  }
}
