import { hash } from 'node:crypto'
import { chmodSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { inTreeOrder } from '../../../src/core/trust/tree-digest.ts'
import type { PartTree } from '../../../src/install/files/extracted-tree.ts'
import { installPath, type Layout, type Place } from '../../../src/install/host/layout.ts'
import { recordInstalled } from '../../../src/install/host/record.ts'
import { type RecordedTree, stagedItems, writeTreeRecord } from '../../../src/install/trees/record.ts'
import { plannedSymlinks } from '../../core/archive/plan-listing.ts'
import { writeTree } from '../../folders.ts'
import { rowOf } from '../prepared-host.ts'

type Texts = Readonly<Record<string, string>>

/** A tree of these files, all of mode 0644, and of these symlinks, as an extraction describes it. */
export function treeOf(files: Texts, symlinks: Texts = {}): PartTree {
  return {
    files: inTreeOrder(Object.entries(files).map(([path, text]) => ({ path, text }))).map(({ path, text }) => ({
      path,
      size: Buffer.byteLength(text),
      mode: 0o644 as const,
      sha256: hash('sha256', text),
    })),
    symlinks: plannedSymlinks(Object.keys(files), symlinks),
  }
}

/** Writes these files, all of mode 0644, and these symlinks. */
export function writeTreeOf(root: string, files: Texts, symlinks: Texts = {}): void {
  writeTree(root, files)
  for (const path of Object.keys(files)) chmodSync(join(root, path), 0o644)
  for (const [path, target] of Object.entries(symlinks)) symlinkSync(target, join(root, path))
}

/** Writes the record of a tree whose files are at `root`. */
export async function recordTreeAt(layout: Layout, root: string, tree: PartTree): Promise<RecordedTree> {
  return await writeTreeRecord(layout, stagedItems({ tree, staged: root }, []))
}

/**
 * Installs `plugins/greeter` with these files and their record. Resolves to the plugin's root and the record's
 * identity.
 */
export async function installRecorded(
  layout: Layout,
  files: Texts,
  symlinks: Texts = {},
): Promise<RecordedTree & { root: string }> {
  const root = installPath(layout, GREETER)
  writeTreeOf(root, files, symlinks)
  const tree = await recordTreeAt(layout, root, treeOf(files, symlinks))
  await recordInstalled(layout, { rows: [rowOf(tree)], removed: [] })
  return { ...tree, root }
}

export const GREETER: Place = { shelf: 'plugins', id: 'greeter', directory: 'plugins' }
