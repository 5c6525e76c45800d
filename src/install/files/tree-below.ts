import type { ExtractedTree } from './extracted-tree.ts'

/** What is below a folder, with paths relative to it; its symlinks must not leave it. */
export function treeBelow(
  { files, symlinks }: Pick<ExtractedTree, 'files' | 'symlinks'>,
  folder: string,
): Pick<ExtractedTree, 'files' | 'symlinks'> {
  const isBelow = ({ path }: { path: string }): boolean => path.startsWith(`${folder}/`)
  const below = (path: string): string => path.slice(folder.length + 1)
  return {
    files: files.filter(isBelow).map(file => ({ ...file, path: below(file.path) })),
    symlinks: symlinks.filter(isBelow).map(({ path, target, file, reach }) => {
      return { path: below(path), target, file: file === null ? null : below(file), reach: below(reach) }
    }),
  }
}
