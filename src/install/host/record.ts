import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod/mini'
import { DeploymentError } from '../../core/errors.ts'
import { comparePaths } from '../../core/trust/tree-digest.ts'
import { replaceFile } from '../files/durable.ts'
import { type Layout, nameOf, type PartName, placeName, placeOf } from './layout.ts'
import {
  countSchema,
  type InstalledRow,
  type InstalledVersion,
  installedRowSchema,
  isUnique,
  newestInstallation,
  type PendingService,
  type ProjectVersion,
  projectVersionSchema,
  type RemovedRow,
  removedRowSchema,
  snapshotPathSchema,
  snapshotsFrom,
} from './rows.ts'
import { describeDamage, readStateFileSync } from './state-file.ts'

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
type InstalledChange = Omit<Installation, 'discard'>

/**
 * The records of the hosts that this process has locked, by the path of the record's file. While a host is locked, no
 * other process may write that file. The records are kept here rather than in a context, because the lock, too, belongs
 * to the process. A reader without the context would read what another process has written.
 */
const held = new Map<string, HostRecord>()

/**
 * Reads the record once, because this process has locked the host. Until `releaseHostRecord`, this process uses that
 * record with its own changes, and anything that another process writes to the file has no effect.
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
 * there is none. Every name in the record is safe in a path, and each part is listed once.
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
    installations: Math.max(before.installations, newestInstallation(rows)),
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
export async function recordPending(layout: Layout, pendingOf: PendingOf): Promise<void> {
  const before = readHostRecord(layout)
  const installed = withPending(before.installed, pendingOf)
  if (installed.some((row, at) => row !== before.installed[at])) await writeRecord(layout, { ...before, installed })
}

/** Returns the services of a row that are pending; true if one is, but it is not known which. */
export type PendingOf = (row: InstalledRow) => readonly PendingService[] | true

/** Returns which services of a row are pending; true if one is, but it is not known which. */
export const pendingIn: PendingOf = ({ service_pending: pending, pending_services: services }) =>
  pending === undefined ? [] : (services ?? true)

/** Returns the rows with these pending services. */
function withPending(rows: readonly InstalledRow[], pendingOf: PendingOf): readonly InstalledRow[] {
  return rows.map(row => {
    const pending = pendingOf(row)
    if (isDeepStrictEqual(pending, pendingIn(row))) return row
    const { service_pending: _, pending_services: __, ...others } = row
    if (pending === true) return { ...others, service_pending: true }
    return pending.length === 0 ? others : { ...others, service_pending: true, pending_services: [...pending] }
  })
}

/**
 * Returns the number of the installation that comes after all others on this host. At the greatest number, which only a
 * forged record reaches, numbers repeat, and no version counts as older than another.
 */
export function nextInstallation(layout: Layout): number {
  return Math.min(readHostRecord(layout).installations + 1, Number.MAX_SAFE_INTEGER)
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

/** The content of `installed.json`. */
const recordFileSchema = z
  .object({
    schema: z.literal(1),
    /** The number of installations so far, which only grows. Left out before the first. */
    installations: z.exactOptional(countSchema),
    installed: z.array(installedRowSchema),
    /** Left out when empty. */
    removed: z.exactOptional(z.array(removedRowSchema)),
    /** The versions of projects that still have parts here, the newest of each project last. Left out when empty. */
    projects: z.exactOptional(z.array(projectVersionSchema)),
    /** Snapshots that could not be removed yet, relative to the project root. Left out when empty. */
    discard: z.exactOptional(z.array(snapshotPathSchema)),
  })
  .check(
    z.refine(({ installed, removed = [], discard = [] }) => {
      const retained = retainedPaths([...installed, ...removed])
      return discard.every(path => !retained.has(path))
    }, 'lists a retained snapshot under discard, so it contradicts itself'),
    z.refine(({ installed, removed = [] }) => isUnique([...installed, ...removed].map(nameOf)), {
      error: 'lists a plugin or extension twice, so it contradicts itself',
    }),
    z.refine(({ installed }) => installed.every(row => row.kind === 'plugin' || row.directory === undefined), {
      error: 'has a service in a directory of plugins, so it contradicts itself',
    }),
    z.refine(({ installations = 0, installed, removed = [], projects = [] }) => {
      const listed = [...installed, ...[...installed, ...removed].flatMap(row => row.snapshots)]
      return newestInstallation([...listed, ...projects.flatMap(({ parts }) => parts)]) <= installations
    }, 'lists an installation after the last one that it counts, so it contradicts itself'),
  )
type RecordFile = z.infer<typeof recordFileSchema>

export interface HostRecord {
  /** The number of installations so far, which only grows; 0 if the host has not counted any. */
  readonly installations: number
  readonly installed: readonly InstalledRow[]
  readonly removed: readonly RemovedRow[]
  /** The versions of projects that still have parts here, the newest of each project last. */
  readonly projects: readonly ProjectVersion[]
  /** Snapshots that could not be removed yet, relative to the project root. */
  readonly discard: readonly string[]
}

/**
 * Reads `installed.json`; returns an empty record if there is none. Throws DeploymentError `inconsistent` if the file
 * is not a record that this action writes, and the errors of `readStateFileSync`.
 */
function readRecordFile(layout: Layout): HostRecord {
  const text = readStateFileSync(layout.installed)
  if (text === undefined) return { installations: 0, installed: [], removed: [], projects: [], discard: [] }
  try {
    return parseRecord(text)
  } catch (error) {
    throw new DeploymentError(
      'inconsistent',
      `${layout.installed} is not a record that this action writes (${describeDamage(error)}). Restore it from a copy. Or move it away (this removes no plugin or service), and deploy each plugin, service and project again: name its version, and set allow-takeover: true for a project. Until then, this action has no record of the installed directories.`,
      { cause: error },
    )
  }
}

/** Writes the record, durably. Returns the record as readers will get it from the file. */
async function writeRecordFile(layout: Layout, record: HostRecord): Promise<HostRecord> {
  const file = fileOf(record)
  await replaceFile(layout.installed, `${JSON.stringify(file, null, 2)}\n`)
  return recordOf(file)
}

/**
 * Returns the file's content for a record. Parsing puts the keys in a fixed order, so the same rows always have the
 * same bytes.
 */
function fileOf({ installations, installed, ...lists }: HostRecord): RecordFile {
  const optional = Object.fromEntries(Object.entries(lists).filter(([, list]) => list.length > 0))
  return recordFileSchema.parse({ schema: 1, ...(installations > 0 && { installations }), installed, ...optional })
}

/** Returns the record that a file contains. */
function recordOf({ installations = 0, installed, removed = [], projects = [], discard = [] }: RecordFile): HostRecord {
  return { installations, installed, removed, projects, discard }
}

/** Returns the paths of the snapshots in these rows, relative to the project root. */
export function retainedPaths(rows: readonly RemovedRow[]): Set<string> {
  return new Set(rows.flatMap(row => row.snapshots.map(({ name }) => `.hub-deploy/snapshots/${nameOf(row)}/${name}`)))
}

/**
 * The last text that was parsed, and its record. A process reads the same text many times and need not check it each
 * time.
 */
let latest: { readonly text: string; readonly record: HostRecord } | undefined

function parseRecord(text: string): HostRecord {
  if (latest?.text !== text) latest = { text, record: recordOf(recordFileSchema.parse(JSON.parse(text))) }
  return latest.record
}

/** The limit for one project. Without it, a project that changes only its version would fill the record. */
const MAX_PROJECT_VERSIONS = 20

/**
 * Returns the versions that stay recorded, including `added` if there is one. For each project, these are the newest 20
 * versions whose parts this host still has (see `isProjectLeft`). A version whose sources had different contents at
 * different times is recorded once for each set of trees.
 */
function retainVersions(
  known: readonly ProjectVersion[],
  added: ProjectVersion | undefined,
  rows: readonly (InstalledRow | RemovedRow)[],
): ProjectVersion[] {
  const others = known.filter(version => added === undefined || !isSameSet(version, added))
  const all = added === undefined ? others : [...others, added]
  const left = all.filter((version, index) =>
    isProjectLeft(version, { rows, isNewest: !all.slice(index + 1).some(later => isSameName(later, version)) }),
  )
  const slugs = [...new Set(left.map(({ slug }) => slug))].filter(slug => slug !== added?.slug)
  const ordered = [...slugs, ...(added === undefined ? [] : [added.slug])]
  return ordered.flatMap(slug => left.filter(version => version.slug === slug).slice(-MAX_PROJECT_VERSIONS))
}

function isSameName(a: ProjectVersion, b: ProjectVersion): boolean {
  return a.slug === b.slug && a.version === b.version
}

/** True if two entries are the same version with the same trees. */
function isSameSet(a: ProjectVersion, b: ProjectVersion): boolean {
  const treesOf = ({ parts }: ProjectVersion): string[] =>
    parts.map(part => JSON.stringify([nameOf(part), part.directory, part.tree_digest, part.tree_record])).sort()
  return isSameName(a, b) && treesOf(a).join() === treesOf(b).join()
}

/** The facts that decide whether a version is still useful. */
interface Remains {
  readonly rows: readonly (InstalledRow | RemovedRow)[]
  /** Whether no later entry in the list is for the same version. */
  readonly isNewest: boolean
}

/**
 * True if the host still has each part of a version. Also true of the newest entry for a version if the host has a
 * snapshot that was recorded with that version.
 */
function isProjectLeft({ slug, version, parts }: ProjectVersion, { rows, isNewest }: Remains): boolean {
  const known = rows.flatMap(row => [...('version' in row ? [row] : []), ...row.snapshots])
  const isNamed = rows.some(row =>
    snapshotsFrom(row, { contract: 'project', slug }).some(snapshot => snapshot.project_version === version),
  )
  return (isNewest && isNamed) || parts.every(part => known.some(row => isSameTree(row, part)))
}

/** True if two rows have the same tree, and the same record of that tree. */
export function isSameTree(
  a: Pick<InstalledVersion, 'tree_digest' | 'tree_record'>,
  b: Pick<InstalledVersion, 'tree_digest' | 'tree_record'>,
): boolean {
  return a.tree_digest !== null && a.tree_digest === b.tree_digest && a.tree_record === b.tree_record
}
