import type { ExtractedFile, ExtractedFiles, ExtractedTree } from '../../../src/install/files/trees/extracted-tree.ts'

/** Returns a tree without its files' inodes and times, which differ from extraction to extraction. */
export function withoutStamps({ files, ...tree }: ExtractedTree<ExtractedFiles>): ExtractedTree {
  return { ...tree, files: Array.from(files, ({ stamp: _, ...file }): ExtractedFile => file) }
}
