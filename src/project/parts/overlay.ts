import { renameSync } from 'node:fs'
import { basename, join } from 'node:path'
import { comparisonKey } from '../../core/archive/platform-names.ts'
import { inTreeOrder } from '../../core/trust/tree-digest.ts'
import { makeOpenDirectorySync } from '../../install/files/durable-files.ts'
import type { TimeSlice } from '../../install/files/time-slice.ts'
import type { NamedTree } from '../../install/files/trees/tree-below.ts'

/** A tree in a folder of this deployment. */
export interface PlacedTree {
  readonly staged: string
  readonly tree: NamedTree
}

/** The only files that a stub has in its top directory, with its templates in any. */
const STUB_FILES: ReadonlySet<string> = new Set(['plugin.yaml', 'service.yaml', 'extension.yaml'])

/** Whether a file of the archive may be part of a stub: nothing else is laid next to code that its source vouches for. */
export function isStubFile({ path }: { readonly path: string }): boolean {
  return STUB_FILES.has(path) || basename(path).endsWith('.template')
}

/**
 * Lays a fetched tree over the stub that the archive contains of its part: moves each file of the stub into the fetched
 * tree's folder where nothing is in its way. A name in both is the fetched one's, plugin.yaml too; names are equal when
 * they may be one name to this platform. Symlinks of a stub are left out: they could lead elsewhere now.
 */
export async function layOverStub(fetched: PlacedTree, stub: PlacedTree, slice: TimeSlice): Promise<PlacedTree> {
  const { symlinks } = fetched.tree
  const taken = new Set([...fetched.tree.files, ...symlinks].map(({ path }) => keyOf(path)))
  const folders = new Map(fetched.tree.directories.map(path => [keyOf(path), path]))
  const isFree = ({ path }: { path: string }): boolean => {
    const isFolderFree = (folder: string): boolean => !taken.has(keyOf(folder)) && isFreeFor(folders, folder)
    return !taken.has(keyOf(path)) && !folders.has(keyOf(path)) && foldersAbove(path).every(isFolderFree)
  }
  const files = stub.tree.files.filter(file => isStubFile(file) && isFree(file))
  await slice.forEach(files, ({ path }) => {
    for (const folder of foldersAbove(path)) {
      if (folders.has(keyOf(folder))) continue
      folders.set(keyOf(folder), folder)
      makeOpenDirectorySync(join(fetched.staged, folder))
    }
    renameSync(join(stub.staged, path), join(fetched.staged, path))
  })
  // A rename changes a file's times, so what was known of them is not true any more.
  const moved = files.map(({ stamp: _, ...file }) => file)
  const tree = { files: inTreeOrder([...fetched.tree.files, ...moved]), symlinks, directories: [...folders.values()] }
  return { staged: fetched.staged, tree }
}

/** A directory that is there under this very name is used, and no other of the same key. */
function isFreeFor(folders: ReadonlyMap<string, string>, folder: string): boolean {
  return (folders.get(keyOf(folder)) ?? folder) === folder
}

function keyOf(path: string): string {
  return comparisonKey(path, process.platform)
}

/** `a/b/c` is in `a/b` and `a`. */
function foldersAbove(path: string): string[] {
  const parts = path.split('/')
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join('/'))
}
