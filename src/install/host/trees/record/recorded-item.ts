import { treeDigest } from '../../../../core/trust/tree-digest.ts'
import type { TreeItem } from '../../../files/trees/tree-item.ts'

/** An item of a tree, as the tree's record describes it. */
export interface RecordedItem extends TreeItem {
  /** Digest of a file, or of the file that a symlink leads to; otherwise undefined. */
  readonly sha256: string | undefined
  /** See `FoundItem`; undefined if only the content can show whether the item has changed. */
  readonly stamp: string | undefined
}

/** Returns the tree digest of these items: a symlink to a file counts with the bytes of that file. */
export function digestOfItems(items: Iterable<RecordedItem>): string {
  return treeDigest([...items].flatMap(({ path, sha256 }) => (sha256 === undefined ? [] : [{ path, sha256 }])))
}
