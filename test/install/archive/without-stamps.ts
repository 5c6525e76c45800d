import type { ExtractedTree } from '../../../src/install/files/trees/extracted-tree.ts'

/** A tree without the inodes and times of its files, which differ from extraction to extraction. */
export function withoutStamps({ files, ...tree }: ExtractedTree): ExtractedTree {
  return { ...tree, files: files.map(({ stamp: _, ...file }) => file) }
}
