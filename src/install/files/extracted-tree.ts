import type { PlannedSymlink } from '../../core/archive/policy.ts'
import type { Log } from '../../core/log.ts'
import { cleanForeignText, countInWords, listFirst } from '../../core/text.ts'

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
  /** The files that begin with `#!` but are not executable, because the archive has no Unix modes. */
  readonly scripts?: readonly string[]
}

/** The files and symlinks of a part's tree. */
export type PartTree = Pick<ExtractedTree, 'files' | 'symlinks' | 'scripts'>

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
  /** 0644 or 0755; less if a default ACL of the shelf gives less. */
  readonly mode: number
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
  /** The owner of a `TreeItem`; undefined if nothing has been written. */
  readonly owner?: string
}

/** All files, symlinks and directories of a tree. */
export type NamedTree = Pick<ExtractedTree, 'files' | 'symlinks' | 'directories' | 'scripts'>

/**
 * Returns the part of a tree below a folder, with paths relative to the folder. The symlinks below the folder must not
 * lead out of it.
 */
export function treeBelow({ files, symlinks, directories, scripts = [] }: NamedTree, folder: string): NamedTree {
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
    scripts: scripts.filter(isBelow).map(below),
  }
}

/** Logs at most one notice, which counts the scripts of one or more trees that are not executable. */
export function noticeScripts(log: Log, scripts: readonly string[]): void {
  const names = listFirst(
    scripts.map(path => cleanForeignText(path, 64)),
    3,
  )
  const they = scripts.length === 1 ? 'is' : 'are'
  if (scripts.length > 0)
    log.notice(
      `${countInWords(scripts.length, 'file')} with a first line such as #!/bin/sh ${they} not executable (${names}), because the ZIP has no Unix modes. Start ${scripts.length === 1 ? 'it' : 'them'} through the interpreter, or have the publisher mark what is executable (chmod +x; on Windows git update-index --chmod=+x) and pack a commit with git archive, or the folder with zip on Linux or macOS.`,
    )
}
