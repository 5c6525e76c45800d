import { isBelow } from '../../../../core/is-below.ts'
import { comparePaths, inTreeOrder } from '../../../../core/trust/tree-digest.ts'
import type { ExtractedFiles, ExtractedTree } from '../../../files/trees/extracted-tree.ts'
import { describeItemSync } from '../../../files/trees/tree-item.ts'
import type { RecordedItem } from './recorded-item.ts'

type StagedTree = Pick<ExtractedTree<ExtractedFiles>, 'files' | 'symlinks'>

/**
 * Returns the items of an extracted tree in order, with the stamps that `stampOf` returns. Leaves out the keep-paths,
 * which belong to the host.
 */
export function* itemsOf(
  { files, symlinks }: StagedTree,
  keepPaths: readonly string[],
  stampOf: StampOf = () => undefined,
): Generator<RecordedItem, undefined> {
  const isKept = isBelow(keepPaths)
  const links = linkItems({ files, symlinks }, stampOf)
  let link = links.next()
  for (const file of files) {
    for (; !link.done && comparePaths(link.value.path, file.path) < 0; link = links.next())
      if (!isKept(link.value.path)) yield link.value
    const { path, sha256 } = file
    if (!isKept(path))
      yield { path, kind: file.mode.toString(8), content: String(file.size), sha256, stamp: stampOf(file) }
  }
  for (; !link.done; link = links.next()) if (!isKept(link.value.path)) yield link.value
}

function* linkItems({ files, symlinks }: StagedTree, stampOf: StampOf): Generator<RecordedItem, undefined> {
  if (symlinks.length === 0) return
  const digests = new Map(Array.from(files, ({ path, sha256 }) => [path, sha256]))
  for (const symlink of inTreeOrder(symlinks)) {
    const { path, target, file } = symlink
    yield { path, kind: 'link', content: target, sha256: digests.get(file ?? ''), stamp: stampOf(symlink) }
  }
}

/** Returns the known stamp of an item, or undefined. */
type StampOf = (item: { readonly path: string; readonly stamp?: string }) => string | undefined

/**
 * Returns the items of `itemsOf` with their stamps in the folder of the extracted tree. Reads the unknown stamps from
 * that folder.
 */
export function stagedItems(
  { tree, staged }: { readonly tree: StagedTree; readonly staged: string },
  keepPaths: readonly string[],
): Generator<RecordedItem, undefined> {
  return itemsOf(tree, keepPaths, ({ path, stamp }) => stamp ?? describeItemSync(staged, path)?.stamp)
}
