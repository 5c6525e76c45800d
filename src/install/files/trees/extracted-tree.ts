import type { PlannedSymlink } from '../../../core/archive/archive-policy.ts'

/** What an extraction created; all paths are relative to its target. */
export interface ExtractedTree {
  /** In the order of the tree digest, which is computed more than once. */
  readonly files: readonly ExtractedFile[]
  readonly symlinks: readonly PlannedSymlink[]
  readonly directories: readonly string[]
  /** Bytes of all files. */
  readonly bytes: number
  /** The name of the single top-level directory that was left out, or null. */
  readonly flattened: string | null
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
