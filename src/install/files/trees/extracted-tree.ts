import type { PlannedSymlink } from '../../../core/archive/archive-policy.ts'

/** What an extraction created; all paths are relative to its target. */
export interface ExtractedTree<Files extends ExtractedFiles = readonly ExtractedFile[]> {
  /** In the order of the tree digest, which is computed more than once. */
  readonly files: Files
  readonly symlinks: readonly PlannedSymlink[]
  readonly directories: readonly string[]
  /** Bytes of all files. */
  readonly bytes: number
  /** The name of the single top-level directory that was left out, or null. */
  readonly flattened: string | null
}

/** An array, or what takes less memory: see `FileList`. */
export interface ExtractedFiles extends Iterable<ExtractedFile> {
  readonly length: number
}

/** Tests whether a path is one of theirs. Collects them only when it is called: most plans name no file. */
export function pathTest(files: ExtractedFiles): (path: string) => boolean {
  let paths: ReadonlySet<string> | undefined
  return path => {
    paths ??= pathsOf(files)
    return paths.has(path)
  }
}

/** All of their paths. */
export function pathsOf(files: ExtractedFiles): ReadonlySet<string> {
  const paths = new Set<string>()
  for (const { path } of files) paths.add(path)
  return paths
}

export interface ExtractedFile {
  /** Relative, `/` between components. */
  readonly path: string
  /** Bytes. */
  readonly size: number
  readonly mode: 0o644 | 0o755
  /** Lowercase hex of the file's bytes, computed as they were unpacked, before they were on any disk. */
  readonly sha256: string
  /**
   * See `FoundItem`: read from the descriptor after the last write. A later change of the file shows, but not one in the
   * same tick of the file system's clock. Nobody makes one: the folder is private until the tree is in its place.
   */
  readonly stamp?: string
}
