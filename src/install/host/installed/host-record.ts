import { z } from 'zod/mini'
import { DeploymentError } from '../../../core/errors.ts'
import { comparePaths } from '../../../core/trust/tree-digest.ts'
import { replaceFile } from '../../files/durable-files.ts'
import { type Layout, type PartName, placeName } from '../layout.ts'
import { snapshotPathSchema } from '../record-fields.ts'
import { describeDamage, readStateFileSync } from '../state-file.ts'
import { retainVersions } from './project-versions.ts'
import { nameOf, placeOf } from './row-place.ts'
import {
  type InstalledRow,
  installedRowSchema,
  isUnique,
  type ProjectVersion,
  projectVersionSchema,
  type RemovedRow,
  removedRowSchema,
} from './rows.ts'

/** The changes to the record of this host that a deployment commits. */
export interface Installation {
  rows: readonly InstalledRow[]
  /** Places that are empty from now on. */
  removed: readonly RemovedRow[]
  /** Snapshots to remove, relative to the project root. */
  discard: readonly string[]
  /** For a project: the version that the host has from now on. */
  project?: ProjectVersion
}

const fileSchema = z
  .object({
    schema: z.literal(1),
    installed: z.array(installedRowSchema),
    /** Left out when empty. */
    removed: z.exactOptional(z.array(removedRowSchema)),
    /** The versions of projects that still have parts here, the newest of each project last. Left out when empty. */
    projects: z.exactOptional(z.array(projectVersionSchema)),
    /** Snapshots that could not be removed yet, relative to the project root. Left out when empty. */
    discard: z.exactOptional(z.array(snapshotPathSchema)),
    /** Services that a rollback could not restore, as JSON. Left out when empty. */
    unrestored: z.exactOptional(z.array(z.string())),
  })
  .check(
    z.refine(({ installed, removed = [], discard = [] }) => {
      const retained = new Set([...installed, ...removed].flatMap(snapshotPathsOf))
      return discard.every(path => !retained.has(path))
    }, 'lists a retained snapshot under discard, so it contradicts itself'),
    z.refine(({ installed, removed = [] }) => isUnique([...installed, ...removed].map(nameOf)), {
      error: 'lists a plugin or extension twice, so it contradicts itself',
    }),
    z.refine(({ installed }) => installed.every(row => row.kind === 'plugin' || row.directory === undefined), {
      error: 'has a service in a directory of plugins, so it contradicts itself',
    }),
  )

export interface HostRecord {
  readonly installed: readonly InstalledRow[]
  readonly removed: readonly RemovedRow[]
  /** The versions of projects that still have parts here, the newest of each project last. */
  readonly projects: readonly ProjectVersion[]
  /** Snapshots that could not be removed yet, relative to the project root. */
  readonly discard: readonly string[]
  /** Services that a rollback could not restore: they may still run the version that was rolled back. */
  readonly unrestored: readonly string[]
}

/** Returns the parts that are installed on this host; see `readHostRecord`. */
export function readInstalled(layout: Layout): readonly InstalledRow[] {
  return readHostRecord(layout).installed
}

/**
 * Returns the parts that are installed on this host, and the removed ones with their snapshots; empty if nothing was
 * ever installed. Every name in it is safe in a path, and each part is listed once.
 *
 * Throws DeploymentError `inconsistent` if the file is not one that this action writes, and the errors of
 * `readStateFileSync`.
 */
export function readHostRecord(layout: Layout): HostRecord {
  const text = readStateFileSync(layout.installed)
  if (text === undefined) return { installed: [], removed: [], projects: [], discard: [], unrestored: [] }
  try {
    return parseRecord(text)
  } catch (error) {
    throw new DeploymentError(
      'inconsistent',
      `${layout.installed} is not a record that this action writes (${describeDamage(error)}). Restore it from a copy, or move it away to start again: the installed directories then count as foreign and are kept.`,
      { cause: error },
    )
  }
}

/** A run reads the same text two dozen times, and checks it once. */
let latest: { readonly text: string; readonly record: HostRecord } | undefined

function parseRecord(text: string): HostRecord {
  if (latest?.text !== text) {
    const { installed, removed = [], projects = [], discard = [], unrestored = [] } = fileSchema.parse(JSON.parse(text))
    latest = { text, record: { installed, removed, projects, discard, unrestored } }
  }
  return latest.record
}

/**
 * Records installed and removed parts in one write; each row replaces that of the same part. Durable when it returns.
 */
export async function recordInstalled(
  layout: Layout,
  { rows, removed, project }: Omit<Installation, 'discard'>,
): Promise<void> {
  const places = new Set([...rows, ...removed].map(nameOf))
  const isOther = (row: RemovedRow): boolean => !places.has(nameOf(row))
  const before = readHostRecord(layout)
  const installed = inOrder([...before.installed.filter(isOther), ...rows])
  const retained = inOrder([...before.removed.filter(isOther), ...removed.filter(row => row.snapshots.length > 0)])
  const rowsLeft = [...installed, ...retained]
  const projects = retainVersions(before.projects, project, rowsLeft)
  await writeRecord(layout, { ...before, installed, removed: retained, projects })
}

/** Records the snapshots that could not be removed yet. Durable when it returns. */
export async function recordDiscarded(layout: Layout, discard: readonly string[]): Promise<void> {
  await writeRecord(layout, { ...readHostRecord(layout), discard: [...discard] })
}

/** Records the services that could not be restored. Durable when it returns. */
export async function recordUnrestored(layout: Layout, unrestored: readonly string[]): Promise<void> {
  await writeRecord(layout, { ...readHostRecord(layout), unrestored: [...unrestored] })
}

async function writeRecord(layout: Layout, { installed, ...lists }: HostRecord): Promise<void> {
  const optional = Object.fromEntries(Object.entries(lists).filter(([, list]) => list.length > 0))
  // Parsed, so that the keys have one order, and the same rows are always the same bytes.
  const record = fileSchema.parse({ schema: 1, installed, ...optional })
  await replaceFile(layout.installed, `${JSON.stringify(record, null, 2)}\n`)
}

/** Returns the row of a part, or undefined if there is none. */
export function findInstalled<Row extends RemovedRow>(rows: readonly Row[], part: PartName): Row | undefined {
  return rows.find(row => nameOf(row) === placeName(part))
}

/** Returns the directories that plugins are or were in, by our own record. */
export function recordedDirectories({ installed, removed, projects }: HostRecord): string[] {
  const parts = [...installed, ...removed, ...projects.flatMap(project => project.parts)]
  return [...new Set(parts.filter(({ kind }) => kind === 'plugin').map(part => placeOf(part).directory))]
}

function snapshotPathsOf(row: Pick<RemovedRow, 'kind' | 'id' | 'snapshots'>): string[] {
  return row.snapshots.map(({ name }) => `.hub-deploy/snapshots/${nameOf(row)}/${name}`)
}

function inOrder<Row extends RemovedRow>(rows: readonly Row[]): Row[] {
  return rows.toSorted((a, b) => comparePaths(nameOf(a), nameOf(b)))
}
