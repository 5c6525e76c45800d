import type { PlannedSymlink } from '../../../core/archive/archive-policy.ts'

/** Files, symlinks and directories that an extraction created. All paths are relative to its target. */
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

/** An array, or a `FileList`, which takes less memory. */
export interface ExtractedFiles extends Iterable<ExtractedFile> {
  readonly length: number
}

/**
 * Returns a function that says whether a path belongs to one of these files. The paths are collected only when that
 * function is first called, because most plans name no file.
 */
export function pathTest(files: ExtractedFiles): (path: string) => boolean {
  let paths: ReadonlySet<string> | undefined
  return path => {
    paths ??= pathsOf(files)
    return paths.has(path)
  }
}

/** Returns the paths of all files. */
export function pathsOf(files: ExtractedFiles): ReadonlySet<string> {
  const paths = new Set<string>()
  for (const { path } of files) paths.add(path)
  return paths
}

export interface ExtractedFile {
  /** Relative, with `/` between components. */
  readonly path: string
  /** Bytes. */
  readonly size: number
  readonly mode: 0o644 | 0o755
  /**
   * The digest in lowercase hex, computed from the bytes as they were unpacked, not as they were read back from a disk.
   */
  readonly sha256: string
  /**
   * The stamp of a `FoundItem`, read from the descriptor after the last write. Shows a later change to the file, except
   * one in the same tick of the file system's clock. Nobody makes such a change: the target is private until the tree
   * is in place.
   */
  readonly stamp?: string
}
