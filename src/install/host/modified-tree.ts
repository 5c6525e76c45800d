import { posix } from 'node:path'
import { FileDigester } from '../files/file-digester.ts'
import { TimeSlice } from '../files/time-slice.ts'
import { type FoundItem, scanTree } from '../files/tree-scan.ts'
import type { HostTree } from './keep-paths.ts'
import { pairUp } from './tree-comparison.ts'
import { isBelow, type RecordedItem } from './tree-record.ts'

/** As many as an archive may need. */
const MAX_LINKS = 40

/**
 * The items of a tree as it is now, in order, without keep-paths. Reads only the files that are not as they were
 * recorded. Follows no symlink: one counts with the bytes of the file that it leads to inside the tree, if there is one.
 * Throws what reading the record throws, the system's error, and the signal's reason once it is aborted.
 */
export async function describeTree(
  { root, keepPaths }: HostTree,
  record: Iterable<RecordedItem>,
  signal?: AbortSignal,
): Promise<RecordedItem[]> {
  const [slice, digester, items] = [new TimeSlice(signal), new FileDigester(signal), [] as RecordedItem[]]
  for (const { recorded, found } of pairUp(record, scanTree(root, isBelow(keepPaths)))) {
    if (found !== undefined) {
      const sha256 = isFile(found)
        ? (knownDigest(recorded, found) ?? (await digester.sha256(`${root}/${found.path}`)))
        : undefined
      items.push({ ...found, sha256 })
    }
    if (slice.isOver()) await slice.giveBack()
  }
  return withLinkedDigests(items)
}

function isFile({ kind }: FoundItem): boolean {
  return kind !== 'link' && kind !== 'other'
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
