import { lstatSync, readdirSync } from 'node:fs'
import { posix } from 'node:path'
import { foldedKey } from '../../core/archive/planned-tree.ts'
import { errnoOf } from '../../core/errors.ts'
import { isBelow } from '../../core/identifiers.ts'
import { bytesInWords } from '../../core/text.ts'
import { comparePaths } from '../../core/trust/tree-digest.ts'
import { isFoundOtherwise, isSamePath, withListed } from '../files/spelling.ts'
import { FileDigester, TimeSlice } from '../files/time-slice.ts'
import {
  describeItemSync,
  type FoundItem,
  isAbsent,
  isBarred,
  isFile,
  lstatIfPresentSync,
  type ScanRules,
  scanTree,
  stampOf,
} from '../files/walk.ts'
import type { HostTree } from '../host/snapshots.ts'
import type { RecordedItem } from './record.ts'

/** The maximum number of added paths that are listed: a service may have written millions. */
const MAX_ADDED = 10_000

/** The differences between a tree and its record. The paths are relative to the tree and in order. */
export interface TreeDifference {
  /** In the tree, but not recorded; at most 10,000. */
  added: string[]
  /** `added` does not list every added path; absent otherwise. */
  uncounted?: true
  /** Recorded, but not in the tree. */
  removed: string[]
  changed: string[]
  /**
   * The type of entry found instead of the directory, if there is no directory. In that case, `removed` contains each
   * recorded path outside keep-paths, and the other lists are empty.
   */
  instead?: NoDirectory
}

export type NoDirectory = 'nothing' | 'symlink' | 'file' | 'other'

/** The items of the record and of the tree at one path; one of the two may be missing. */
interface Pair {
  readonly recorded?: RecordedItem | undefined
  readonly found?: FoundItem | undefined
}

/** A tree, and the callbacks of its scan. */
export type ScannedTree = HostTree & Omit<ScanRules, 'isLeftOut'>

/**
 * Compares a tree with its record: types, modes, owners, symlink targets, and bytes. Does not read a file whose inode and times
 * show that it is unchanged. Ignores keep-paths, and unrecorded files for which `isCache` is true. Works in slices.
 * Throws any error from reading the record, the system's error, and the signal's reason once the signal is aborted.
 */
export async function compareTree(
  tree: ScannedTree,
  record: Iterable<RecordedItem>,
  signal?: AbortSignal,
): Promise<TreeDifference> {
  const instead = findNoDirectory(tree.root)
  const difference: TreeDifference = { added: [], removed: [], changed: [], ...(instead && { instead }) }
  for await (const { recorded, found } of findDifferences(tree, record, signal)) {
    if (recorded !== undefined) difference[found === undefined ? 'removed' : 'changed'].push(recorded.path)
    else if (difference.added.length < MAX_ADDED) difference.added.push(found.path)
    else difference.uncounted = true
  }
  return difference
}

/** The recorded item and the found item at a path where the two differ; at least one of them is defined. */
export type Difference =
  | { readonly recorded: RecordedItem; readonly found: FoundItem | undefined }
  | { readonly recorded: undefined; readonly found: FoundItem }

/**
 * Compares as `compareTree` does, and yields the differences in the order of their paths; on a file system that ignores
 * case, the added paths come last. If there is no directory, every recorded path counts as missing.
 */
export async function* findDifferences(
  { root, keepPaths, onDirectory, onStamp }: ScannedTree,
  record: Iterable<RecordedItem>,
  signal?: AbortSignal,
): AsyncGenerator<Difference, undefined> {
  signal?.throwIfAborted()
  const [slice, digester] = [new TimeSlice(signal), new FileDigester(signal)]
  const [isKept, respelled] = [keptTest({ root, keepPaths }), new RespelledItems(root)]
  for (const { recorded, found } of pairUp(record, scanTree(root, { isLeftOut: isKept, onDirectory, onStamp }))) {
    if (slice.isOver()) await slice.giveBack()
    if (recorded === undefined) {
      if (found !== undefined && !isCache(found.path) && !respelled.holdBack(found)) yield { recorded, found }
      continue
    }
    if (isKept(recorded.path)) continue
    const item = found ?? respelled.find(recorded.path)
    if (item === undefined) yield { recorded, found }
    else {
      // Most files need not be read, and awaiting each result would take longer than the comparison.
      const isSame = compareStates(recorded, item) ?? (await hasSameBytes(recorded, item, { root, digester }))
      if (!isSame) yield { recorded, found: item }
    }
  }
  for (const found of respelled.added()) yield { recorded: undefined, found }
}

/** Returns a test for the kept paths of a tree and all paths below them, also as the tree lists them. */
function keptTest({ root, keepPaths }: HostTree): (path: string) => boolean {
  return isBelow(withListed(root, keepPaths))
}

/** The maximum number of unrecorded items that are held back. */
const MAX_HELD = 10_000
const NON_ASCII = /[^\p{ASCII}]/u

/**
 * The items that a tree lists in another spelling than the record does, although the file system finds them in the
 * recorded one. On a file system that distinguishes all spellings, costs one call for each missing item, and one for
 * the first unrecorded item.
 */
class RespelledItems {
  readonly #root: string
  /** Whether the file system ignores case; undefined while this is not known. */
  #isFolding: boolean | undefined
  readonly #held: FoundItem[] = []
  readonly #recorded: string[] = []

  constructor(root: string) {
    this.#root = root
  }

  /** Returns the item that the file system finds at a recorded path, without following a symlink on the way. */
  find(path: string): FoundItem | undefined {
    const item = describeItemSync(this.#root, path)
    // Without a stamp, the item is a directory, or cannot be examined.
    if (item === undefined || item.stamp === '' || !this.#isReached(path)) return undefined
    this.#recorded.push(path)
    return item
  }

  /** Holds back an unrecorded item that could be a recorded one in another spelling. Returns whether it did. */
  holdBack(item: FoundItem): boolean {
    if (this.#held.length >= MAX_HELD || !this.#isFoundOtherwise(item.path)) return false
    this.#held.push(item)
    return true
  }

  /** Returns the items held back that are no recorded items. Call this method when all pairs have been compared. */
  added(): FoundItem[] {
    const keys = Map.groupBy(this.#recorded, foldedKey)
    const isRecorded = ({ path }: FoundItem): boolean =>
      keys.get(foldedKey(path))?.some(recorded => isSamePath(this.#at(path), this.#at(recorded))) === true
    return this.#held.filter(item => !isRecorded(item))
  }

  #isFoundOtherwise(path: string): boolean {
    this.#isFolding ??= isFoundOtherwise(this.#root, path)
    return this.#isFolding === true || (NON_ASCII.test(path) && isFoundOtherwise(this.#root, path) === true)
  }

  /** True if every directory above the path is a real directory of the tree. */
  #isReached(path: string): boolean {
    const parts = path.split('/').slice(0, -1)
    const above = ['', ...parts.map((_, index) => `/${parts.slice(0, index + 1).join('/')}`)]
    return above.every(folder => lstatIfPresentSync(`${this.#root}${folder}`)?.isDirectory() === true)
  }

  #at(path: string): string {
    return `${this.#root}/${path}`
  }
}

/** Returns the type of entry found instead of a directory; undefined if the path is a directory. */
export function findNoDirectory(root: string): NoDirectory | undefined {
  const stat = lstatIfPresentSync(root)
  if (stat === undefined) return 'nothing'
  if (stat.isDirectory()) return undefined
  if (stat.isSymbolicLink()) return 'symlink'
  return stat.isFile() ? 'file' : 'other'
}

/**
 * True for a path in a directory where Python itself writes its caches: an unrecorded file there is not a difference.
 */
function isCache(path: string): boolean {
  return /(?:^|\/)__pycache__\//.test(path)
}

/** A tree whose files can be read. */
interface ReadableTree {
  readonly root: string
  readonly digester: FileDigester
}

/**
 * True if the found item matches the recorded item; undefined if only the bytes of a file can show whether they match.
 */
function compareStates(recorded: RecordedItem, found: FoundItem): boolean | undefined {
  if (recorded.kind !== found.kind || recorded.content !== found.content) return false
  if (!isFile(found)) return true
  if (!isOwnerKept(recorded, found)) return false
  return recorded.stamp === found.stamp ? true : undefined
}

/** True if a file belongs to the recorded owner. A record from before owners were recorded does not say. */
export function isOwnerKept(recorded: RecordedItem, found: FoundItem): boolean {
  return recorded.owner === undefined || recorded.owner === found.owner
}

/** True if the found item matches the recorded item. Reads a file only if everything else does not decide. */
export async function isAsRecorded(recorded: RecordedItem, found: FoundItem, tree: ReadableTree): Promise<boolean> {
  return compareStates(recorded, found) ?? (await hasSameBytes(recorded, found, tree))
}

/** True if a file has the bytes of the recorded file. Reads the file only if these are known and the sizes are equal. */
export async function hasSameBytes(
  recorded: RecordedItem,
  found: FoundItem,
  { root, digester }: ReadableTree,
): Promise<boolean> {
  if (recorded.content !== found.content || recorded.sha256 === undefined) return false
  try {
    return (await digester.sha256(`${root}/${found.path}`, Number(found.content))) === recorded.sha256
  } catch (error) {
    // Another process has just removed or replaced the file, or made it unreadable.
    if (isAbsent(error) || isBarred(error)) return false
    throw error
  }
}

/** Pairs the items of two lists in tree order. An empty pair passes on a pause of the scan. */
function* pairUp(record: Iterable<RecordedItem>, tree: Iterator<FoundItem | undefined>): Generator<Pair, undefined> {
  let found = tree.next()
  for (const recorded of record) {
    for (; !found.done; found = tree.next()) {
      if (found.value !== undefined && comparePaths(found.value.path, recorded.path) >= 0) break
      yield { found: found.value }
    }
    if (found.done || found.value?.path !== recorded.path) {
      yield { recorded }
      continue
    }
    yield { recorded, found: found.value }
    found = tree.next()
  }
  for (; !found.done; found = tree.next()) yield { found: found.value }
}

/**
 * The stamps of everything in a tree when it was scanned. They show later, without the tree's record, whether the tree
 * has changed.
 */
export class TreeStamps {
  readonly #seen: { readonly path: string; readonly stamp: string }[] = []
  #inRoot = 0

  /** For a directory, `stamp` must be from before the directory was listed. */
  see(path: string, stamp: string): void {
    this.#seen.push({ path, stamp })
    if (!path.includes('/')) this.#inRoot += 1
  }

  /**
   * True if nothing in this tree has changed since the scan. Ignores the stamp of the root, because the tree may have
   * been moved, but compares the number of entries in the root. A directory counts as changed if a kept path was moved
   * out of it. Throws the signal's reason once the signal is aborted.
   */
  async areThoseOf({ root, keepPaths }: HostTree, signal: AbortSignal): Promise<boolean> {
    const slice = new TimeSlice(signal)
    try {
      if (!lstatSync(root).isDirectory()) return false
      const isKept = keptTest({ root, keepPaths })
      if (readdirSync(root).filter(name => !isKept(name)).length !== this.#inRoot) return false
      for (const { path, stamp } of this.#seen) {
        if (slice.isOver()) await slice.giveBack()
        if (stampOf(lstatSync(`${root}/${path}`, { bigint: true })) !== stamp) return false
      }
      return true
    } catch {
      signal.throwIfAborted()
      return false
    }
  }
}

/** The maximum number of paths. There is a limit, because each path is moved separately. */
const MAX_STRAYS = 2000

/**
 * Returns the relative paths of the unrecorded files in the bytecode caches of a tree, without keep-paths. For a cache
 * that is entirely unrecorded, returns only the path of the cache. A process that could write to the tree may have put
 * code in these files. Returns undefined if there are more than 2,000 paths. Throws the system's error, and the
 * signal's reason once the signal is aborted.
 */
export async function findStrayCaches(
  { root, keepPaths }: HostTree,
  record: readonly RecordedItem[],
  signal?: AbortSignal,
): Promise<string[] | undefined> {
  const slice = new TimeSlice(signal)
  const known = new Set([...record.map(({ path }) => path), ...keepPaths].filter(isCache).map(cacheOf))
  const strays = new Set<string>()
  for (const { recorded, found } of pairUp(record, scanTree(root, { isLeftOut: keptTest({ root, keepPaths }) }))) {
    if (slice.isOver()) await slice.giveBack()
    if (recorded !== undefined || found === undefined || !isCache(found.path)) continue
    const cache = cacheOf(found.path)
    strays.add(known.has(cache) ? found.path : cache)
    if (strays.size > MAX_STRAYS) return undefined
  }
  return [...strays]
}

/** Returns the outermost cache that contains the path. */
function cacheOf(path: string): string {
  return path.replace(/(?<=^|\/)__pycache__\/.*$/su, '__pycache__')
}

/** The limit for reading the changed files of a tree, in bytes: a service may have made one of them a terabyte long. */
const MAX_BYTES = 256 * 1024 * 1024
/** The number of symlinks in a chain that an archive may contain. */
const MAX_LINKS = 40

/** What is now at the recorded paths of a tree. */
interface TreeDescription {
  /** In order. An item whose bytes were not read has no digest: only its size and stamp identify it. */
  readonly items: RecordedItem[]
  /** The files whose bytes were not read, each with the reason. */
  readonly unread: string[]
}

/**
 * Describes what is now at the recorded paths of a tree, without keep-paths. Leaves out everything else, which was added
 * on this host: nothing vouches for it, and it may be of any kind, number and size. Reads only files whose size or stamp
 * differs from the record, and not those that exceed the limit or cannot be read. Follows no symlink on the disk: a
 * symlink gets the digest of the returned file that it leads to, if there is one. Throws any error from reading the
 * record, the system's error, and the signal's reason once the signal is aborted.
 */
export async function describeTree(
  { root, keepPaths }: HostTree,
  record: Iterable<RecordedItem>,
  signal?: AbortSignal,
): Promise<TreeDescription> {
  let room = MAX_BYTES
  const [slice, digester] = [new TimeSlice(signal), new FileDigester(signal)]
  const [items, unread]: [RecordedItem[], string[]] = [[], []]
  const read = async ({ path, content }: FoundItem): Promise<string | undefined> => {
    const size = Number(content)
    if (size > room) {
      unread.push(`${path} (${bytesInWords(size)}: the changed files have more than ${bytesInWords(MAX_BYTES)})`)
      return undefined
    }
    room -= size
    try {
      return await digester.sha256(`${root}/${path}`, size)
    } catch (error) {
      signal?.throwIfAborted()
      unread.push(`${path} (${errnoOf(error)})`)
      return undefined
    }
  }
  for (const { recorded, found } of pairUp(record, scanTree(root, { isLeftOut: keptTest({ root, keepPaths }) }))) {
    if (slice.isOver()) await slice.giveBack()
    if (recorded === undefined || found === undefined) continue
    items.push({ ...found, sha256: isFile(found) ? (knownDigest(recorded, found) ?? (await read(found))) : undefined })
  }
  return { items: withLinkedDigests(items), unread }
}

function knownDigest(recorded: RecordedItem, { content, stamp }: FoundItem): string | undefined {
  return recorded.stamp === stamp && recorded.content === content ? recorded.sha256 : undefined
}

function withLinkedDigests(items: readonly RecordedItem[]): RecordedItem[] {
  const byPath = new Map(items.map(item => [item.path, item]))
  return items.map(item => (item.kind === 'link' ? { ...item, sha256: digestBehind(item, byPath) } : item))
}

function digestBehind(link: RecordedItem, byPath: ReadonlyMap<string, RecordedItem>): string | undefined {
  let item: RecordedItem | undefined = link
  for (let links = 0; item?.kind === 'link' && links < MAX_LINKS; links++)
    item = byPath.get(posix.join(posix.dirname(item.path), item.content))
  return item?.sha256
}
