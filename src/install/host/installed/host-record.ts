import { comparePaths } from '../../../core/trust/tree-digest.ts'
import { type Layout, type PartName, placeName } from '../layout.ts'
import { retainVersions } from './project-versions.ts'
import { type HostRecord, readRecordFile, retainedPaths, writeRecordFile } from './record-file.ts'
import { nameOf, placeOf } from './row-place.ts'
import type { InstalledRow, ProjectVersion, RemovedRow } from './rows.ts'

/** The changes that a deployment commits to this host's record. */
export interface Installation {
  rows: readonly InstalledRow[]
  /** Places that are empty after the commit. */
  removed: readonly RemovedRow[]
  /** Snapshots to remove, relative to the project root. */
  discard: readonly string[]
  /** For a project, the version that the host has after the commit. */
  project?: ProjectVersion
}

/** An installation without the snapshots to remove. */
export type InstalledChange = Omit<Installation, 'discard'>

/**
 * The records of the hosts that this process has locked, by the path of the record's file. While a host is locked, no
 * other process may write that file. The records are kept here rather than in a context, because the lock, too, belongs
 * to the process. A reader without the context would read what another process has written.
 */
const held = new Map<string, HostRecord>()

/**
 * Reads the record once, because this process has locked the host. Until `releaseHostRecord`, this process uses that
 * record with its own changes, and anything that another process writes to the file has no effect. Throws as
 * `readRecordFile` does.
 */
export function holdHostRecord(layout: Layout): void {
  held.set(layout.installed, readRecordFile(layout))
}

export function releaseHostRecord({ installed }: Layout): void {
  held.delete(installed)
}

/** Returns the parts that are installed on this host; see `readHostRecord`. */
export function readInstalled(layout: Layout): readonly InstalledRow[] {
  return readHostRecord(layout).installed
}

/**
 * Returns the parts that are installed on this host and the removed ones with their snapshots, or an empty record if
 * there is none. Every name in the record is safe in a path, and each part is listed once. Throws as `readRecordFile`
 * does.
 */
export function readHostRecord(layout: Layout): HostRecord {
  return held.get(layout.installed) ?? readRecordFile(layout)
}

/**
 * Records installed and removed parts in one write; each row replaces the earlier row of the same part. The record is
 * durable on return.
 */
export async function recordInstalled(layout: Layout, change: InstalledChange): Promise<void> {
  await writeRecord(layout, withInstalled(readHostRecord(layout), change))
}

/** Returns the record with installed and removed parts; each row replaces the earlier row of the same part. */
export function withInstalled(before: HostRecord, { rows, removed, project }: InstalledChange): HostRecord {
  const places = new Set([...rows, ...removed].map(nameOf))
  const isOther = (row: RemovedRow): boolean => !places.has(nameOf(row))
  const installed = inOrder([...before.installed.filter(isOther), ...rows])
  const retained = inOrder([...before.removed.filter(isOther), ...removed.filter(row => row.snapshots.length > 0)])
  const rowsLeft = [...installed, ...retained]
  const kept = retainedPaths(rowsLeft)
  return {
    installed,
    removed: retained,
    projects: retainVersions(before.projects, project, rowsLeft),
    // A path that was discarded earlier may name a snapshot again.
    discard: before.discard.filter(path => !kept.has(path)),
  }
}

/** Records the snapshots that could not be removed yet. The record is durable on return. */
export async function recordDiscarded(layout: Layout, discard: readonly string[]): Promise<void> {
  await writeRecord(layout, { ...readHostRecord(layout), discard: [...discard] })
}

/**
 * Records the parts with a service that still has to be restarted and checked. Writes nothing if the record says so
 * already; otherwise, the record is durable on return.
 */
export async function recordPending(layout: Layout, isPending: (row: InstalledRow) => boolean): Promise<void> {
  const before = readHostRecord(layout)
  const installed = withPending(before.installed, isPending)
  if (installed.some((row, at) => row !== before.installed[at])) await writeRecord(layout, { ...before, installed })
}

/** Returns the rows with the fact `service_pending` for the rows for which `isPending` is true. */
export function withPending(
  rows: readonly InstalledRow[],
  isPending: (row: InstalledRow) => boolean,
): readonly InstalledRow[] {
  return rows.map(row => {
    const { service_pending: was = false, ...others } = row
    if (isPending(row) === was) return row
    return was ? others : { ...others, service_pending: true }
  })
}

/** Returns the row of a part, or undefined if there is none. */
export function findInstalled<Row extends RemovedRow>(rows: readonly Row[], part: PartName): Row | undefined {
  return rows.find(row => nameOf(row) === placeName(part))
}

/** Returns the directories that plugins are or were in, according to our own record. */
export function recordedDirectories({ installed, removed, projects }: HostRecord): string[] {
  const parts = [...installed, ...removed, ...projects.flatMap(project => project.parts)]
  return [...new Set(parts.filter(({ kind }) => kind === 'plugin').map(part => placeOf(part).directory))]
}

async function writeRecord(layout: Layout, record: HostRecord): Promise<void> {
  const written = await writeRecordFile(layout, record)
  if (held.has(layout.installed)) held.set(layout.installed, written)
}

function inOrder<Row extends RemovedRow>(rows: readonly Row[]): Row[] {
  return rows.toSorted((a, b) => comparePaths(nameOf(a), nameOf(b)))
}
