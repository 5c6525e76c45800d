import type { PlannedSymlink } from '../../core/archive/symlink-policy.ts'

/** What an extraction made, all paths relative to its target. */
export interface ExtractedTree {
  /** In the order of the tree digest, which is asked for more than once. */
  readonly files: readonly ExtractedFile[]
  readonly symlinks: readonly PlannedSymlink[]
  readonly directories: readonly string[]
  /** Bytes of all files. */
  readonly bytes: number
  /** Name of the single top-level directory that was left out, or null. */
  readonly flattened: string | null
}

export interface ExtractedFile {
  /** Relative, `/` between components. */
  readonly path: string
  /** Bytes. */
  readonly size: number
  readonly mode: 0o644 | 0o755
  /** Lowercase hex of the file's bytes, computed from what was unpacked, before it was on any disk. */
  readonly sha256: string
}
