import { z } from 'zod/mini'
import { DeploymentError, errnoOf } from '../core/errors.ts'
import { readFile } from './direct-fs.ts'
import { replaceFile } from './durable-files.ts'
import { toHostError } from './host-errors.ts'
import type { Layout, Shelf } from './layout.ts'

const versionSchema = z.object({
  version: z.nullable(z.string()),
  /** Of the project that it came with; null for what came by itself. */
  project_version: z.nullable(z.string()),
  /** Of the artifact; null for what we did not install ourselves. */
  artifact_sha256: z.nullable(z.string()),
  tree_digest: z.nullable(z.string()),
  installed_at: z.nullable(z.string()),
  deployment_id: z.nullable(z.string()),
  run_url: z.nullable(z.string()),
})
export type InstalledVersion = z.infer<typeof versionSchema>

const snapshotSchema = z.extend(versionSchema, {
  /** The directory's name, `<n>-<version>`. */
  name: z.string(),
})
export type SnapshotRow = z.infer<typeof snapshotSchema>

export const installedRowSchema = z.extend(versionSchema, {
  contract: z.enum(['marketplace', 'project']),
  kind: z.enum(['plugin', 'service']),
  /** Of a part of a project, the project's id. */
  slug: z.string(),
  id: z.string(),
  /** Retained previous versions, newest last. */
  snapshots: z.array(snapshotSchema),
})
export type InstalledRow = z.infer<typeof installedRowSchema>

const fileSchema = z.object({ schema: z.literal(1), installed: z.array(installedRowSchema) })

/**
 * What is installed on this host, as recorded; empty when nothing was ever installed.
 * Throws DeploymentError `inconsistent` when the record is not what we write, and what the operating system says when
 * it cannot be read at all.
 */
export async function readInstalled(layout: Layout): Promise<InstalledRow[]> {
  const text = await readFile(layout.installed, 'utf8').catch(error => {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw toHostError(error, `reading ${layout.installed}`)
  })
  if (text === undefined) return []
  try {
    return fileSchema.parse(JSON.parse(text)).installed
  } catch (error) {
    throw new DeploymentError(
      'inconsistent',
      `${layout.installed} is not the record that this action writes: restore it, or move it away to start afresh (what is installed then counts as foreign and is kept).`,
      { cause: error },
    )
  }
}

/** Records rows, each in place of the one with the same shelf and id, all in one; durable when it returns. */
export async function recordInstalled(layout: Layout, rows: readonly InstalledRow[]): Promise<void> {
  const places = new Set(rows.map(placeOf))
  const others = (await readInstalled(layout)).filter(other => !places.has(placeOf(other)))
  const installed = [...others, ...rows].sort((a, b) => placeOf(a).localeCompare(placeOf(b), 'en'))
  // Parsed, so that the keys have one order, and the same rows are always the same bytes.
  await replaceFile(layout.installed, `${JSON.stringify(fileSchema.parse({ schema: 1, installed }), null, 2)}\n`)
}

export function findInstalled(rows: readonly InstalledRow[], shelf: Shelf, id: string): InstalledRow | undefined {
  return rows.find(row => shelfOf(row.kind) === shelf && row.id === id)
}

export function shelfOf(kind: 'plugin' | 'service'): Shelf {
  return kind === 'plugin' ? 'plugins' : 'extensions'
}

function placeOf(row: InstalledRow): string {
  return `${shelfOf(row.kind)}/${row.id}`
}
