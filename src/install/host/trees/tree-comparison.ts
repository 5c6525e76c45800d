import { isBelow } from '../../../core/is-below.ts'
import { comparePaths } from '../../../core/trust/tree-digest.ts'
import { FileDigester } from '../../files/file-digester.ts'
import { TimeSlice } from '../../files/time-slice.ts'
import { type FoundItem, isBarred } from '../../files/trees/tree-item.ts'
import { type ScanRules, scanTree } from '../../files/trees/tree-scan.ts'
import { isAbsent, lstatIfPresentSync } from '../../files/trees/tree-walk.ts'
import type { HostTree } from '../keep-paths.ts'
import type { RecordedItem } from './record/recorded-item.ts'

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
export interface Pair {
  readonly recorded?: RecordedItem | undefined
  readonly found?: FoundItem | undefined
}

/** A tree, and the callbacks of its scan. */
export type ScannedTree = HostTree & Omit<ScanRules, 'isLeftOut'>

/**
 * Compares a tree with its record: types, modes, symlink targets, and bytes. Does not read a file whose inode and times
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
 * Compares as `compareTree` does, and yields the differences in the order of their paths. If there is no directory,
 * every recorded path counts as missing.
 */
export async function* findDifferences(
  { root, keepPaths, onDirectory, onStamp }: ScannedTree,
  record: Iterable<RecordedItem>,
  signal?: AbortSignal,
): AsyncGenerator<Difference, undefined> {
  signal?.throwIfAborted()
  const [slice, digester] = [new TimeSlice(signal), new FileDigester(signal)]
  const isKept = isBelow(keepPaths)
  for (const { recorded, found } of pairUp(record, scanTree(root, { isLeftOut: isKept, onDirectory, onStamp }))) {
    if (slice.isOver()) await slice.giveBack()
    if (recorded === undefined) {
      if (found !== undefined && !isCache(found.path)) yield { recorded, found }
    } else if (isKept(recorded.path)) continue
    else if (found === undefined) yield { recorded, found }
    else {
      // Most files need not be read, and awaiting each result would take longer than the comparison.
      const isSame = compareStates(recorded, found) ?? (await hasSameBytes(recorded, found, { root, digester }))
      if (!isSame) yield { recorded, found }
    }
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
export function isCache(path: string): boolean {
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
  if (!isSameKind(recorded, found) || recorded.content !== found.content) return false
  return !isFile(found) || recorded.stamp === found.stamp ? true : undefined
}

/** True if the found item matches the recorded item. Reads a file only if the size, mode and stamp do not decide. */
export async function isAsRecorded(recorded: RecordedItem, found: FoundItem, tree: ReadableTree): Promise<boolean> {
  return compareStates(recorded, found) ?? (await hasSameBytes(recorded, found, tree))
}

/** True if a file has the bytes of the recorded file. Reads the file only if the sizes are equal. */
export async function hasSameBytes(
  recorded: RecordedItem,
  found: FoundItem,
  { root, digester }: ReadableTree,
): Promise<boolean> {
  if (recorded.content !== found.content) return false
  try {
    return (await digester.sha256(`${root}/${found.path}`, Number(found.content))) === recorded.sha256
  } catch (error) {
    // Another process has just removed or replaced the file, or made it unreadable.
    if (isAbsent(error) || isBarred(error)) return false
    throw error
  }
}

/** True if an item of a tree or of its record is a regular file. */
export function isFile({ kind }: Pick<FoundItem, 'kind'>): boolean {
  return kind !== 'link' && kind !== 'other'
}

/** An item from a record of an earlier version of the action has no mode. */
function isSameKind({ kind }: RecordedItem, found: FoundItem): boolean {
  return kind === found.kind || (kind === 'file' && isFile(found))
}

/** Pairs the items of two lists in tree order. An empty pair passes on a pause of the scan. */
export function* pairUp(
  record: Iterable<RecordedItem>,
  tree: Iterator<FoundItem | undefined>,
): Generator<Pair, undefined> {
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
