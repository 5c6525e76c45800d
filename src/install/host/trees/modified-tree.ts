import { posix } from 'node:path'
import { isBelow } from '../../../core/is-below.ts'
import { FileDigester } from '../../files/file-digester.ts'
import { TimeSlice } from '../../files/time-slice.ts'
import type { FoundItem } from '../../files/trees/tree-item.ts'
import { scanTree } from '../../files/trees/tree-scan.ts'
import type { HostTree } from '../keep-paths.ts'
import type { RecordedItem } from './record/recorded-item.ts'
import { isCache, isFile, pairUp } from './tree-comparison.ts'

/** The limit for reading a tree, in bytes: a service may have added any number of bytes and files. */
const MAX_BYTES = 256 * 1024 * 1024
/** The minimum number of bytes that each unrecorded file or symlink counts as. */
const BYTES_PER_FILE = 1024
/** The number of symlinks in a chain that an archive may contain. */
const MAX_LINKS = 40

/**
 * Returns the present items of a tree, in order, without keep-paths and unrecorded bytecode caches. Reads only
 * unrecorded files, and those whose size or stamp differs from the record. Returns undefined if these files would
 * exceed the limit, or if two items have the same path. Follows no symlink on the disk: a symlink gets the digest of
 * the returned file that it leads to, if there is one. Throws any error from reading the record, the system's error,
 * and the signal's reason once the signal is aborted.
 */
export async function describeTree(
  { root, keepPaths }: HostTree,
  record: Iterable<RecordedItem>,
  signal?: AbortSignal,
): Promise<RecordedItem[] | undefined> {
  let room = MAX_BYTES
  const [slice, digester, items] = [new TimeSlice(signal), new FileDigester(signal), [] as RecordedItem[]]
  for (const { recorded, found } of pairUp(record, scanTree(root, { isLeftOut: isBelow(keepPaths) }))) {
    if (slice.isOver()) await slice.giveBack()
    if (found === undefined || (recorded === undefined && isCache(found.path))) continue
    const known = knownDigest(recorded, found)
    const size = isFile(found) && known === undefined ? Number(found.content) : 0
    room -= recorded === undefined ? Math.max(size, BYTES_PER_FILE) : size
    // Two names that are not UTF-8 may look equal, and no record contains a path twice.
    if (room < 0 || found.path === items.at(-1)?.path) return undefined
    const sha256 = isFile(found) ? (known ?? (await digester.sha256(`${root}/${found.path}`, size))) : undefined
    items.push({ ...found, sha256 })
  }
  return withLinkedDigests(items)
}

function knownDigest(recorded: RecordedItem | undefined, { content, stamp }: FoundItem): string | undefined {
  return recorded?.stamp === stamp && recorded.content === content ? recorded.sha256 : undefined
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
