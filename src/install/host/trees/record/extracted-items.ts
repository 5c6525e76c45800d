import { isBelow } from '../../../../core/is-below.ts'
import { comparePaths, inTreeOrder } from '../../../../core/trust/tree-digest.ts'
import type { ExtractedTree } from '../../../files/trees/extracted-tree.ts'
import { describeItemSync } from '../../../files/trees/tree-item.ts'
import type { RecordedItem } from './recorded-item.ts'

type StagedTree = Pick<ExtractedTree, 'files' | 'symlinks'>

/** The items of an extracted tree in order, without the keep-paths, which belong to the host, and with these stamps. */
export function* itemsOf(
  tree: StagedTree,
  keepPaths: readonly string[],
  stampOf: StampOf = () => undefined,
): Generator<RecordedItem, undefined> {
  const isKept = isBelow(keepPaths)
  const files = inTreeOrder(tree.files)
  const symlinks = inTreeOrder(tree.symlinks)
  const digests = new Map(symlinks.length === 0 ? [] : files.map(({ path, sha256 }) => [path, sha256]))
  let next = 0
  for (const symlink of [...symlinks, undefined]) {
    for (let file = files[next]; file !== undefined; file = files[++next]) {
      if (symlink !== undefined && comparePaths(symlink.path, file.path) < 0) break
      const { path, sha256 } = file
      if (!isKept(path))
        yield { path, kind: file.mode.toString(8), content: String(file.size), sha256, stamp: stampOf(file) }
    }
    if (symlink === undefined || isKept(symlink.path)) continue
    const { path, target, file } = symlink
    yield { path, kind: 'link', content: target, sha256: digests.get(file ?? ''), stamp: stampOf(symlink) }
  }
}

/** What an item's stamp is known to be. */
type StampOf = (item: { readonly path: string; readonly stamp?: string }) => string | undefined

/** The same items with their stamps in the folder to which the tree was extracted, each read anew where none is known. */
export function stagedItems(
  { tree, staged }: { readonly tree: StagedTree; readonly staged: string },
  keepPaths: readonly string[],
): Generator<RecordedItem, undefined> {
  return itemsOf(tree, keepPaths, ({ path, stamp }) => stamp ?? describeItemSync(staged, path)?.stamp)
}
