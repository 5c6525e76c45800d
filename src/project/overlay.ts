import { renameSync } from 'node:fs'
import { join } from 'node:path'
import { inTreeOrder } from '../core/trust/tree-digest.ts'
import { makeOpenDirectorySync } from '../install/files/durable-files.ts'
import type { TimeSlice } from '../install/files/time-slice.ts'
import type { PartTree } from '../install/steps/part.ts'

/** A tree in a folder of this deployment. */
export interface PlacedTree {
  readonly staged: string
  readonly tree: PartTree
}

/**
 * Lays a fetched tree over the stub that the archive contains of its part: moves each file of the stub into the fetched
 * tree's folder where nothing is in its way. A name in both is the fetched one's, plugin.yaml too. Symlinks of a stub
 * are left out: they could lead elsewhere now.
 */
export async function layOverStub(fetched: PlacedTree, stub: PlacedTree, slice: TimeSlice): Promise<PlacedTree> {
  const taken = new Set([...fetched.tree.files, ...fetched.tree.symlinks].map(({ path }) => path))
  const folders = new Set([...taken].flatMap(foldersAbove))
  const isFree = ({ path }: { path: string }): boolean =>
    !taken.has(path) && !folders.has(path) && !foldersAbove(path).some(folder => taken.has(folder))
  const files = stub.tree.files.filter(isFree)
  await slice.forEach(files, ({ path }) => {
    for (const folder of foldersAbove(path)) {
      if (folders.has(folder)) continue
      folders.add(folder)
      makeOpenDirectorySync(join(fetched.staged, folder))
    }
    renameSync(join(stub.staged, path), join(fetched.staged, path))
  })
  const { symlinks } = fetched.tree
  return { staged: fetched.staged, tree: { files: inTreeOrder([...fetched.tree.files, ...files]), symlinks } }
}

/** `a/b/c` is in `a/b` and `a`. */
function foldersAbove(path: string): string[] {
  const parts = path.split('/')
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join('/'))
}
