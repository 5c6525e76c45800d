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

/** The files that a stub may have in its top directory. It may also have templates, in any directory. */
const STUB_FILES: ReadonlySet<string> = new Set(['plugin.yaml', 'service.yaml', 'extension.yaml'])

/**
 * True if a file of the archive may be part of a stub. No other file is laid next to code that its source vouches for.
 */
export function isStubFile({ path }: { readonly path: string }): boolean {
  return STUB_FILES.has(path) || basename(path).endsWith('.template')
}

/**
 * Lays a fetched tree over the part's stub from the archive: moves each stub file (`isStubFile`) into the fetched
 * tree's folder if nothing is in its way. If both trees have a file of the same name, the fetched file wins, even if it
 * is plugin.yaml. Two names count as the same if this platform may treat them as one. Leaves out a stub's symlinks,
 * because they could now lead elsewhere.
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
  // A rename changes a file's times, so the file's stamp is no longer valid.
  const moved = files.map(({ stamp: _, ...file }) => file)
  const tree = { files: inTreeOrder([...fetched.tree.files, ...moved]), symlinks, directories: [...folders.values()] }
  return { staged: fetched.staged, tree }
}

/**
 * A stub's directory may exist in the fetched tree under exactly the same name, but not under a different one with the
 * same key.
 */
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
