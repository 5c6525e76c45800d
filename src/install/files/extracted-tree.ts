import type { PlannedSymlink } from '../../core/archive/policy.ts'
import { PackedTexts } from '../../core/columns.ts'

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

/**
 * A fixed number of extracted files, in the order of their places. Each place is set once, in any order. A file is an
 * object only while it is used.
 */
export class FileList implements Iterable<ExtractedFile> {
  readonly length: number
  readonly #texts = new PackedTexts()
  readonly #rows: Uint32Array
  readonly #sizes: Float64Array
  readonly #modes: Uint16Array

  constructor(length: number) {
    this.length = length
    this.#rows = new Uint32Array(length)
    this.#sizes = new Float64Array(length)
    this.#modes = new Uint16Array(length)
  }

  set(place: number, { path, size, mode, sha256, stamp = '' }: ExtractedFile): void {
    this.#rows[place] = this.#texts.length
    this.#sizes[place] = size
    this.#modes[place] = mode
    for (const text of [path, sha256, stamp]) this.#texts.add(text)
  }

  *[Symbol.iterator](): Generator<ExtractedFile, undefined> {
    for (let place = 0; place < this.length; place++) yield this.#at(place)
  }

  #at(place: number): ExtractedFile {
    const row = this.#rows[place] as number
    const stamp = this.#texts.at(row + 2)
    return {
      path: this.#texts.at(row),
      size: this.#sizes[place] as number,
      mode: this.#modes[place] as ExtractedFile['mode'],
      sha256: this.#texts.at(row + 1),
      ...(stamp !== '' && { stamp }),
    }
  }
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
