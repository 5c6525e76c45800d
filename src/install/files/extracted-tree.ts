import type { PlannedSymlink } from '../../core/archive/policy.ts'

/** Files, symlinks and directories that an extraction created. All paths are relative to its target. */
export interface ExtractedTree {
  /** In the order of the tree digest, which is computed more than once. */
  readonly files: readonly ExtractedFile[]
  readonly symlinks: readonly PlannedSymlink[]
  readonly directories: readonly string[]
  /** Bytes of all files. */
  readonly bytes: number
  /** The name of the single top-level directory that was left out, or null. */
  readonly flattened: string | null
  /** The names of top-level entries that were left out, because macOS adds them. */
  readonly strays?: readonly string[]
}

/** The files and symlinks of a part's tree. */
export type PartTree = Pick<ExtractedTree, 'files' | 'symlinks'>

/**
 * Returns a function that says whether a path belongs to one of these files. The paths are collected only when that
 * function is first called, because most plans name no file.
 */
export function pathTest(files: readonly ExtractedFile[]): (path: string) => boolean {
  let paths: ReadonlySet<string> | undefined
  return path => {
    paths ??= pathsOf(files)
    return paths.has(path)
  }
}

/** Returns the paths of all files. */
export function pathsOf(files: readonly ExtractedFile[]): ReadonlySet<string> {
  return new Set(files.map(({ path }) => path))
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
