import { readFileSync } from 'node:fs'
import { z } from 'zod/mini'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { replaceFile } from '../files/durable-files.ts'
import { toHostError } from '../files/system-errors.ts'
import { type Layout, type Place, placeName, type Shelf } from './layout.ts'

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

/** Which plugin or service of the marketplace, or which project; then the slug is the project's id. */
const originSchema = z.object({ contract: z.enum(['marketplace', 'project']), slug: z.string() })
export type Origin = z.infer<typeof originSchema>

const snapshotSchema = z.extend(versionSchema, {
  /** The directory's name, `<n>-<version>`. */
  name: z.string(),
  /** Where it differs from the row's own. */
  origin: z.exactOptional(originSchema),
  /** The keep-paths that stayed in it, because nothing replaced it. */
  kept_paths: z.exactOptional(z.array(z.string())),
})
export type SnapshotRow = z.infer<typeof snapshotSchema>

export const installedRowSchema = z.extend(versionSchema, {
  contract: originSchema.shape.contract,
  kind: z.enum(['plugin', 'service']),
  slug: originSchema.shape.slug,
  id: z.string(),
  /** Retained previous versions, newest last. */
  snapshots: z.array(snapshotSchema),
})
export type InstalledRow = z.infer<typeof installedRowSchema>

/** A place that a later version of its project left empty, and the snapshots retained of it. */
export const removedRowSchema = z.pick(installedRowSchema, {
  contract: true,
  kind: true,
  slug: true,
  id: true,
  snapshots: true,
})
export type RemovedRow = z.infer<typeof removedRowSchema>

/** What a deployment commits. */
export interface Installation {
  rows: readonly InstalledRow[]
  /** Places that are empty from now on. */
  removed: readonly RemovedRow[]
  /** Snapshots to remove, relative to the project root. */
  discard: readonly string[]
}

const fileSchema = z.object({
  schema: z.literal(1),
  installed: z.array(installedRowSchema),
  /** Left out when empty. */
  removed: z.exactOptional(z.array(removedRowSchema)),
})

export interface HostRecord {
  installed: InstalledRow[]
  removed: RemovedRow[]
}

/** What is installed on this host; see `readHostRecord`. */
export function readInstalled(layout: Layout): InstalledRow[] {
  return readHostRecord(layout).installed
}

/**
 * What is installed on this host, and what is retained of removed parts; empty when nothing was ever installed.
 * Throws DeploymentError `inconsistent` when the file is not one that we write, and the system's error when it cannot
 * be read at all.
 */
export function readHostRecord(layout: Layout): HostRecord {
  const text = readText(layout.installed)
  if (text === undefined) return { installed: [], removed: [] }
  try {
    const { installed, removed = [] } = fileSchema.parse(JSON.parse(text))
    return { installed, removed }
  } catch (error) {
    throw new DeploymentError(
      'inconsistent',
      `${layout.installed} is not a record that this action writes. Restore it, or move it away to start again: what is installed then counts as foreign and is kept.`,
      { cause: error },
    )
  }
}

/**
 * Records what was installed and removed, each row replacing the one of the same place, in a single write. Durable when
 * it returns.
 */
export async function recordInstalled(
  layout: Layout,
  { rows, removed }: Pick<Installation, 'rows' | 'removed'>,
): Promise<void> {
  const places = new Set([...rows, ...removed].map(nameOf))
  const isOther = (row: RemovedRow): boolean => !places.has(nameOf(row))
  const before = readHostRecord(layout)
  const installed = inOrder([...before.installed.filter(isOther), ...rows])
  const retained = inOrder([...before.removed.filter(isOther), ...removed.filter(row => row.snapshots.length > 0)])
  const record = { schema: 1, installed, ...(retained.length > 0 ? { removed: retained } : {}) }
  // Parsed, so that the keys have one order, and the same rows are always the same bytes.
  await replaceFile(layout.installed, `${JSON.stringify(fileSchema.parse(record), null, 2)}\n`)
}

/** The row of a place. */
export function findInstalled<Row extends RemovedRow>(rows: readonly Row[], place: Place): Row | undefined {
  return rows.find(row => nameOf(row) === placeName(place))
}

/** Whether a row is of this origin. */
export function isFrom({ contract, slug }: Origin, origin: Origin): boolean {
  return contract === origin.contract && slug === origin.slug
}

/** The snapshots in a row that are of this origin, even if the row is of another now. */
export function snapshotsFrom(row: RemovedRow, origin: Origin): SnapshotRow[] {
  return row.snapshots.filter(snapshot => isFrom(snapshot.origin ?? row, origin))
}

/** The snapshots in a row, as the row of another origin records them. */
export function handOver(row: RemovedRow, to: Origin): SnapshotRow[] {
  return row.snapshots.map(({ origin, ...snapshot }) => {
    const { contract, slug } = origin ?? row
    return isFrom({ contract, slug }, to) ? snapshot : { ...snapshot, origin: { contract, slug } }
  })
}

/** Where a row's plugin or service is installed. */
export function placeOf({ kind, id }: Pick<RemovedRow, 'kind' | 'id'>): Place {
  return { shelf: shelfOf(kind), id }
}

export function shelfOf(kind: 'plugin' | 'service'): Shelf {
  return kind === 'plugin' ? 'plugins' : 'extensions'
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw toHostError(error, `reading ${path}`)
  }
}

function inOrder<Row extends RemovedRow>(rows: readonly Row[]): Row[] {
  return rows.toSorted((a, b) => nameOf(a).localeCompare(nameOf(b), 'en'))
}

function nameOf(row: RemovedRow): string {
  return placeName(placeOf(row))
}
