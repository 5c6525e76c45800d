import type { Log } from '../../../core/log.ts'
import { toHostError } from '../../files/system-errors.ts'
import { findInstalled, readInstalled } from '../installed/host-record.ts'
import { placeOf } from '../installed/row-place.ts'
import type { InstalledRow } from '../installed/rows.ts'
import { installPath, type Layout, type PartName, placeName, placePath } from '../layout.ts'
import { type FindRecorded, openTreeRecord, readTreeRecord } from './record/read-tree-record.ts'
import type { RecordedItem } from './record/recorded-item.ts'
import { recordPath, type TreeIdentity } from './record/tree-identity.ts'
import { TreeRecordDamage } from './record/tree-record-damage.ts'
import { compareTree, type ScannedTree, type TreeDifference } from './tree-comparison.ts'

/** Where this host's records are, and the log that names a damaged record. */
export interface RecordFolder {
  readonly layout: Layout
  readonly log: Log
}

export interface InstalledTree extends PartName {
  readonly keepPaths: readonly string[]
  /** The path that the tree was moved to, if it was moved. */
  readonly root?: string | undefined
  readonly onStamp?: ScannedTree['onStamp']
}

/**
 * Returns the differences between the files of an installed plugin or extension and those that were installed. Leaves
 * out keep-paths and unrecorded files in bytecode caches. Apart from these, three empty lists mean that every file and
 * symlink has the recorded bytes, mode and target, and that there are no other files. (A record of an earlier version
 * of the action has no modes.) A file that was touched, or replaced by a copy, counts as unchanged.
 *
 * Undefined means that the differences are not known: nothing is recorded, or, after a warning, the record or the tree
 * cannot be read. In that case, do not treat the tree as intact. Throws only the signal's reason, once the signal is
 * aborted. Does not read a file whose inode and times show that it is unchanged.
 */
export async function findDrift(
  folder: RecordFolder,
  tree: InstalledTree,
  signal?: AbortSignal,
): Promise<TreeDifference | undefined> {
  return await compareInstalled(folder, tree, { signal })
}

export interface Comparison {
  readonly signal?: AbortSignal | undefined
  /** True to read every file, because inodes and times are not proof enough (after a crash, for example). */
  readonly byContent?: boolean
}

/** Does the same as `findDrift`, but reads every file if `byContent` is set. */
export async function compareInstalled(
  folder: RecordFolder,
  tree: InstalledTree,
  { signal, byContent = false }: Comparison,
): Promise<TreeDifference | undefined> {
  const { layout, log } = folder
  let row: InstalledRow | undefined
  try {
    row = findInstalled(readInstalled(layout), tree)
    if (row === undefined) return undefined
    const hostTree = {
      root: tree.root ?? installPath(layout, placeOf(row)),
      keepPaths: tree.keepPaths,
      onStamp: tree.onStamp,
      identity: row,
    }
    return await compareRecorded(layout, hostTree, { signal, byContent })
  } catch (error) {
    signal?.throwIfAborted()
    const name = row === undefined ? placeName(tree) : placePath(placeOf(row))
    log.warning(`${name} is not compared with what was installed. ${reasonOf(error, layout, row)}`)
    return undefined
  }
}

/**
 * Returns a function that looks up single paths in the record of an installed tree. The first call to that function
 * opens the record, and throws as `readInstalled` and `openTreeRecord` do.
 */
export function findRecordedIn(layout: Layout, tree: PartName): FindRecorded {
  let find: FindRecorded | undefined
  return path => {
    const identity = find ? undefined : findInstalled(readInstalled(layout), tree)
    find ??= (identity && openTreeRecord(layout, identity)) ?? (() => undefined)
    return find(path)
  }
}

/**
 * Returns the differences between a tree and the record of a version; undefined if there is no record. Throws as
 * `readTreeRecord` and `compareTree` do.
 */
export async function compareRecorded(
  layout: Layout,
  { identity, ...tree }: ScannedTree & { readonly identity: TreeIdentity },
  { signal, byContent = false }: Comparison,
): Promise<TreeDifference | undefined> {
  const record = readTreeRecord(layout, identity)
  return record && (await compareTree(tree, byContent ? withoutStamps(record) : record, signal))
}

function* withoutStamps(record: Iterable<RecordedItem>): Generator<RecordedItem, undefined> {
  for (const item of record) yield { ...item, stamp: undefined }
}

/** Explains why a tree could not be compared with the installed version; for a damaged record, also says what to do. */
export function reasonOf(error: unknown, layout: Layout, identity: TreeIdentity | undefined): string {
  if (!(error instanceof TreeRecordDamage) || identity === undefined)
    return toHostError(error, 'reading the installed files or their record').message
  return `${recordPath(layout, identity)} is not a record of installed files that this action writes (${error.message}). Move it away: the next deployment of this part writes a new record.`
}
