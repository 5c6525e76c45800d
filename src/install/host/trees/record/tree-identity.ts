import type { InstalledVersion } from '../../installed/rows.ts'
import { earlierRecordPath, type Layout, treeRecordPath } from '../../layout.ts'

/**
 * The fields of `installed.json` that identify the files of a version: their tree digest, and the name of their record.
 */
export type TreeIdentity = Pick<InstalledVersion, 'tree_digest' | 'tree_record'>

/** Returns the `TreeIdentity` in a row, without the row's other fields. */
export function identityOf({ tree_digest, tree_record }: TreeIdentity): TreeIdentity {
  return tree_record === undefined ? { tree_digest } : { tree_digest, tree_record }
}

/** The identity of a tree that has just been recorded. */
export interface RecordedTree {
  readonly tree_digest: string
  readonly tree_record: string
}

/** The path of a version's record. */
export function recordPath(layout: Layout, { tree_digest, tree_record }: TreeIdentity): string {
  return tree_record === undefined ? earlierRecordPath(layout, tree_digest ?? '') : treeRecordPath(layout, tree_record)
}
