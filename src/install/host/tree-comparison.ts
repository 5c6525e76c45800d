import { comparePaths } from '../../core/trust/tree-digest.ts'
import { FileDigester } from '../files/file-digester.ts'
import { TimeSlice } from '../files/time-slice.ts'
import { type FoundItem, isBarred, scanTree } from '../files/tree-scan.ts'
import { isAbsent, lstatIfPresentSync } from '../files/tree-walk.ts'
import type { HostTree } from './keep-paths.ts'
import { isBelow, type RecordedItem } from './tree-record.ts'

/** A service may have written millions. */
const MAX_ADDED = 10_000

/** How a tree differs from its record; paths relative to the tree, in order. */
export interface TreeDifference {
  /** In the tree, but not recorded; at most 10,000. */
  added: string[]
  /** Recorded, but not in the tree. */
  removed: string[]
  changed: string[]
  /** What is in place of the directory, if there is none: then each recorded path is removed, and nothing else. */
  instead?: NoDirectory
}

export type NoDirectory = 'nothing' | 'symlink' | 'file' | 'other'

/** What the record and the tree have at one path; one of the two may be missing. */
export interface Pair {
  readonly recorded?: RecordedItem | undefined
  readonly found?: FoundItem | undefined
}

/**
 * Compares a tree with its record: types, modes, symlink targets, and bytes. Reads only files whose inode or times are
 * not those that were recorded. Does not compare keep-paths, nor what `isCache` names. Works in slices; throws what reading
 * the record throws, the system's error, and the signal's reason once it is aborted.
 */
export async function compareTree(
  { root, keepPaths }: HostTree,
  record: Iterable<RecordedItem>,
  signal?: AbortSignal,
): Promise<TreeDifference> {
  signal?.throwIfAborted()
  const [slice, digester] = [new TimeSlice(signal), new FileDigester(signal)]
  const isKept = isBelow(keepPaths)
  const difference: TreeDifference = { added: [], removed: [], changed: [], ...findNoDirectory(root) }
  for (const { recorded, found } of pairUp(record, scanTree(root, isKept))) {
    if (slice.isOver()) await slice.giveBack()
    if (recorded === undefined) {
      if (found === undefined || isCache(found.path)) continue
      if (difference.added.length < MAX_ADDED) difference.added.push(found.path)
    } else if (isKept(recorded.path)) continue
    else if (found === undefined) difference.removed.push(recorded.path)
    else if (!(await isSame(recorded, found, path => digester.sha256(`${root}/${path}`, Number(found.content)))))
      difference.changed.push(found.path)
  }
  return difference
}

function findNoDirectory(root: string): { instead?: NoDirectory } {
  const stat = lstatIfPresentSync(root)
  if (stat === undefined) return { instead: 'nothing' }
  if (stat.isDirectory()) return {}
  if (stat.isSymbolicLink()) return { instead: 'symlink' }
  return { instead: stat.isFile() ? 'file' : 'other' }
}

/** Where Python writes by itself: what is there and was not recorded is no difference. */
export function isCache(path: string): boolean {
  return /(?:^|\/)__pycache__\//.test(path)
}

async function isSame(
  recorded: RecordedItem,
  found: FoundItem,
  digestOf: (path: string) => Promise<string>,
): Promise<boolean> {
  if (!isSameKind(recorded, found) || recorded.content !== found.content) return false
  if (
    found.kind === 'link' ||
    found.kind === 'other' ||
    (recorded.stamp !== undefined && recorded.stamp === found.stamp)
  )
    return true
  try {
    return (await digestOf(found.path)) === recorded.sha256
  } catch (error) {
    // Another process has just removed or replaced it, or made it unreadable.
    if (isAbsent(error) || isBarred(error)) return false
    throw error
  }
}

/** Some records do not know the mode of a file. */
function isSameKind({ kind }: RecordedItem, found: FoundItem): boolean {
  return kind === found.kind || (kind === 'file' && found.kind !== 'link' && found.kind !== 'other')
}

/** Merges two lists in tree order. An empty pair is a pause. */
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
