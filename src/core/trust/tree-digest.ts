import { createHash } from 'node:crypto'

const SLASH = 0x2f

export interface DigestedFile {
  /** Relative to the tree's root, `/` between the components. */
  path: string
  /** Lowercase hex SHA-256 of the file's bytes. */
  sha256: string
}

/**
 * Returns the tree digest (docs/files.md, "Tree digest"): lowercase hex SHA-256 of UTF-8 lines joined by `\n`. Each
 * line is `<relative path>:<sha256 of the file>`. The lines are in the order of `comparePaths`.
 */
export function treeDigest(files: readonly DigestedFile[]): string {
  return orderedTreeDigest(inTreeOrder(files))
}

/** Like `treeDigest`, for files already in tree order: comparing all paths takes longer than digesting them. */
export function orderedTreeDigest(files: readonly DigestedFile[]): string {
  const lines = files.map(({ path, sha256 }) => `${path}:${sha256}`)
  return createHash('sha256').update(lines.join('\n'), 'utf8').digest('hex')
}

/** Returns the entries in the order of a tree digest. */
export function inTreeOrder<Entry extends { readonly path: string }>(entries: readonly Entry[]): Entry[] {
  return [...entries].sort((a, b) => comparePaths(a.path, b.path))
}

/** Orders paths component by component, each by code points: `a/b` before `a.txt`, U+FF21 before U+1F600. */
export function comparePaths(a: string, b: string): number {
  if (a === b) return 0
  let at = 0
  while (at < a.length && at < b.length && a.charCodeAt(at) === b.charCodeAt(at)) at++
  return rankAt(a, at) - rankAt(b, at)
}

/** Ranks the rest of a path: the end of the path comes first, then the end of a component, then any character. */
function rankAt(path: string, at: number): number {
  // If two surrogate pairs begin with the same half, their second halves have the order of the code points.
  const codePoint = path.codePointAt(at)
  if (codePoint === undefined) return -2
  return codePoint === SLASH ? -1 : codePoint
}
