import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { InstalledRow } from './installed.ts'
import { readInstalled, recordInstalled } from './installed.ts'
import type { Layout } from './layout.ts'
import { pruneTreeRecords } from './tree-record.ts'

/**
 * What follows a commit, and may be repeated until it is done: the record of what is installed, then the removal of the
 * snapshots that are not retained (`discard`, relative to the project root), then the staging folder.
 */
export async function finishCommitted(layout: Layout, row: InstalledRow, discard: readonly string[]): Promise<void> {
  await recordInstalled(layout, row)
  for (const path of discard) await rm(join(layout.root, path), { recursive: true, force: true })
  await cleanStaging(layout)
  const used = (await readInstalled(layout)).flatMap(installed =>
    [installed, ...installed.snapshots].flatMap(version => version.tree_digest ?? []),
  )
  await pruneTreeRecords(layout, new Set(used))
}

/** Removes everything in the staging folder; only who holds the lock may. */
export async function cleanStaging(layout: Layout): Promise<void> {
  for (const name of await readdir(layout.staging))
    await rm(join(layout.staging, name), { recursive: true, force: true })
}
