import { hash } from 'node:crypto'
import { buildTreeRecord, type TreeRecord } from '../../../src/install/host/tree-record.ts'
import { plannedSymlinks } from '../../core/archive/plan-listing.ts'

/** The record of a tree of these files, all 0644, and symlinks. */
export function recordOf(
  files: Readonly<Record<string, string>>,
  symlinks: Readonly<Record<string, string>> = {},
  keepPaths: readonly string[] = [],
): TreeRecord {
  const tree = {
    files: Object.entries(files).map(([path, text]) => ({
      path,
      size: Buffer.byteLength(text),
      mode: 0o644 as const,
      sha256: hash('sha256', text),
    })),
    symlinks: plannedSymlinks(Object.keys(files), symlinks),
  }
  return buildTreeRecord(tree, keepPaths)
}
