import type { ExtractedTree } from './extracted-tree.ts'

/** All files, symlinks and directories of a tree. */
export type NamedTree = Pick<ExtractedTree, 'files' | 'symlinks' | 'directories'>

/**
 * Returns the part of a tree below a folder, with paths relative to the folder. The symlinks below the folder must not
 * lead out of it.
 */
export function treeBelow({ files, symlinks, directories }: NamedTree, folder: string): NamedTree {
  const isBelow = (path: string): boolean => path.startsWith(`${folder}/`)
  const below = (path: string): string => path.slice(folder.length + 1)
  return {
    files: files.filter(({ path }) => isBelow(path)).map(file => ({ ...file, path: below(file.path) })),
    symlinks: symlinks
      .filter(({ path }) => isBelow(path))
      .map(({ path, target, file, reach }) => {
        return { path: below(path), target, file: file === null ? null : below(file), reach: below(reach) }
      }),
    directories: directories.filter(isBelow).map(below),
  }
}
