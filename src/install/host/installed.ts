import { z } from 'zod/mini'
import { DeploymentError } from '../../core/errors.ts'
import { idSchema, kindSchema, versionSchema } from '../../core/identifiers.ts'
import { pluginsDirectorySchema } from '../../core/plugins-directory.ts'
import { replaceFile } from '../files/durable-files.ts'
import { type Layout, type PartName, type Place, placeName, type Shelf, usualDirectory } from './layout.ts'
import {
  digestSchema,
  innerPathSchema,
  lineSchema,
  originSlugSchema,
  snapshotNameSchema,
  snapshotPathSchema,
  timeSchema,
} from './record-fields.ts'
import { describeDamage, readStateFileSync } from './state-file.ts'

const installedVersionSchema = z.object({
  version: z.nullable(versionSchema),
  /** Of the project that it came with; null for what came by itself. */
  project_version: z.nullable(versionSchema),
  /** Of the artifact; null for what we did not install ourselves. */
  artifact_sha256: z.nullable(digestSchema),
  tree_digest: z.nullable(digestSchema),
  /** The name of the record of its files; absent where an earlier version of the action has installed them. */
  tree_record: z.exactOptional(digestSchema),
  installed_at: z.nullable(timeSchema),
  deployment_id: z.nullable(z.uuid({ error: 'must be a UUID' })),
  run_url: z.nullable(lineSchema),
  /** Where its files came from, if the artifact only names them: a marketplace or a repository, and a digest or commit. */
  source: z.exactOptional(z.object({ from: lineSchema, id: lineSchema })),
})
export type SourceRecord = NonNullable<z.infer<typeof installedVersionSchema>['source']>
export type InstalledVersion = z.infer<typeof installedVersionSchema>

/** A keep-path of any length. */
const keepPathSchema = z.string().check(
  z.regex(/^(?!(?:.*\/)?\.{0,2}(?:\/|$))\P{Cc}+$/u, {
    error: 'must be a relative path without empty parts, ".", ".." and control characters',
  }),
)

/** Which plugin or service of the marketplace, or which project; then the slug is the project's id. */
const originSchema = z.object({ contract: z.enum(['marketplace', 'project']), slug: originSlugSchema })
export type Origin = z.infer<typeof originSchema>

const snapshotSchema = z.extend(installedVersionSchema, {
  /** The directory's name, `<n>-<version>`. */
  name: snapshotNameSchema,
  /** Where it differs from the row's own. */
  origin: z.exactOptional(originSchema),
  /** Whether its files had been changed on this host; tree digest and record are those of what is really in it. */
  modified: z.exactOptional(z.literal(true)),
  /** The keep-paths that stayed in it, because nothing replaced it. */
  kept_paths: z.exactOptional(z.array(innerPathSchema)),
  /** Which paths its record leaves out, or may have lost to its successor; absent in rows of earlier versions of the action. */
  keep_paths: z.exactOptional(z.array(keepPathSchema)),
})
export type SnapshotRow = z.infer<typeof snapshotSchema>

export const installedRowSchema = z.extend(installedVersionSchema, {
  contract: originSchema.shape.contract,
  kind: kindSchema,
  slug: originSchema.shape.slug,
  id: idSchema,
  /** Which directory of plugins it is in; absent for `plugins`, and for a service. */
  directory: z.exactOptional(pluginsDirectorySchema),
  /** Which paths its record leaves out, because they belong to the host; absent in rows of earlier versions of the action. */
  keep_paths: z.exactOptional(z.array(keepPathSchema)),
  /** Whether it is a snapshot that had been modified and was restored: then its files are not those of the artifact. */
  modified: z.exactOptional(z.literal(true)),
  /** Retained previous versions, newest last. */
  snapshots: z
    .array(snapshotSchema)
    .check(z.refine(rows => isUnique(rows.map(({ name }) => name)), { error: 'must list each snapshot once' })),
})
export type InstalledRow = z.infer<typeof installedRowSchema>

/** A place that a later version of its project left empty, and the snapshots retained of it. */
export const removedRowSchema = z.pick(installedRowSchema, {
  contract: true,
  kind: true,
  slug: true,
  id: true,
  directory: true,
  snapshots: true,
})
export type RemovedRow = z.infer<typeof removedRowSchema>

/** One version of a project: all its parts, as `installed.json` knew each of them then. */
export const projectVersionSchema = z.object({
  slug: originSchema.shape.slug,
  version: versionSchema,
  parts: z
    .array(z.omit(installedRowSchema, { contract: true, slug: true, keep_paths: true, snapshots: true }))
    .check(z.refine(parts => isUnique(parts.map(nameOf)), { error: 'must list each part once' })),
})
export type ProjectVersion = z.infer<typeof projectVersionSchema>
export type ProjectPart = ProjectVersion['parts'][number]

/** What a deployment commits. */
export interface Installation {
  rows: readonly InstalledRow[]
  /** Places that are empty from now on. */
  removed: readonly RemovedRow[]
  /** Snapshots to remove, relative to the project root. */
  discard: readonly string[]
  /** For a project: which version the host has from now on. */
  project?: ProjectVersion
}

/** Of one project, so that one which changes nothing but its version does not fill the record. */
const MAX_PROJECT_VERSIONS = 20

const fileSchema = z
  .object({
    schema: z.literal(1),
    installed: z.array(installedRowSchema),
    /** Left out when empty. */
    removed: z.exactOptional(z.array(removedRowSchema)),
    /** The versions of projects of which something is left, the newest of each last. Left out when empty. */
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
  installed: InstalledRow[]
  removed: RemovedRow[]
  /** The versions of projects of which something is left, the newest of each last. */
  projects: ProjectVersion[]
  /** Snapshots that could not be removed yet, relative to the project root. */
  discard: string[]
  /** Services that a rollback could not restore: they may still run the version that was rolled back. */
  unrestored: string[]
}

/** What is installed on this host; see `readHostRecord`. */
export function readInstalled(layout: Layout): InstalledRow[] {
  return readHostRecord(layout).installed
}

/**
 * What is installed on this host, and what is retained of removed parts; empty when nothing was ever installed. Every
 * name in it is one that may become a path, and each place is listed once.
 * Throws DeploymentError `inconsistent` when the file is not one that we write, and what `readStateFileSync` throws.
 */
export function readHostRecord(layout: Layout): HostRecord {
  const text = readStateFileSync(layout.installed)
  if (text === undefined) return { installed: [], removed: [], projects: [], discard: [], unrestored: [] }
  try {
    const { installed, removed = [], projects = [], discard = [], unrestored = [] } = fileSchema.parse(JSON.parse(text))
    return { installed, removed, projects, discard, unrestored }
  } catch (error) {
    throw new DeploymentError(
      'inconsistent',
      `${layout.installed} is not a record that this action writes (${describeDamage(error)}). Restore it from a copy, or move it away to start again: what is installed then counts as foreign and is kept.`,
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
  { rows, removed, project }: Omit<Installation, 'discard'>,
): Promise<void> {
  const places = new Set([...rows, ...removed].map(nameOf))
  const isOther = (row: RemovedRow): boolean => !places.has(nameOf(row))
  const before = readHostRecord(layout)
  const installed = inOrder([...before.installed.filter(isOther), ...rows])
  const retained = inOrder([...before.removed.filter(isOther), ...removed.filter(row => row.snapshots.length > 0)])
  const rowsLeft = [...installed, ...retained]
  const projects = withVersion(before.projects, project, rowsLeft)
  await writeRecord(layout, { ...before, installed, removed: retained, projects })
}

/** A version whose source has supplied other trees since is there once for each set of trees. */
function withVersion(
  known: readonly ProjectVersion[],
  added: ProjectVersion | undefined,
  rows: readonly (InstalledRow | RemovedRow)[],
): ProjectVersion[] {
  const others = known.filter(version => added === undefined || !isSameSet(version, added))
  const all = added === undefined ? others : [...others, added]
  const left = all.filter((version, index) =>
    isLeft(version, { rows, isNewest: !all.slice(index + 1).some(later => isSameName(later, version)) }),
  )
  const slugs = [...new Set(left.map(({ slug }) => slug))].filter(slug => slug !== added?.slug)
  const ordered = [...slugs, ...(added === undefined ? [] : [added.slug])]
  return ordered.flatMap(slug => left.filter(version => version.slug === slug).slice(-MAX_PROJECT_VERSIONS))
}

function isSameName(a: ProjectVersion, b: ProjectVersion): boolean {
  return a.slug === b.slug && a.version === b.version
}

/** Whether two are the same version with the same trees. */
export function isSameSet(a: ProjectVersion, b: ProjectVersion): boolean {
  const treesOf = ({ parts }: ProjectVersion): string[] =>
    parts.map(part => JSON.stringify([nameOf(part), part.directory, part.tree_digest, part.tree_record])).sort()
  return isSameName(a, b) && treesOf(a).join() === treesOf(b).join()
}

/** What decides whether a version is still of use. */
interface Remains {
  readonly rows: readonly (InstalledRow | RemovedRow)[]
  /** Of those with its name. */
  readonly isNewest: boolean
}

/** Whether the host still has each part of a version, or some part that nothing but this version had. */
function isLeft({ slug, version, parts }: ProjectVersion, { rows, isNewest }: Remains): boolean {
  const known = rows.flatMap(row => [...('version' in row ? [row] : []), ...row.snapshots])
  const isNamed = rows.some(row =>
    snapshotsFrom(row, { contract: 'project', slug }).some(snapshot => snapshot.project_version === version),
  )
  return (isNewest && isNamed) || parts.every(part => known.some(row => isSameTree(row, part)))
}

/** Whether two rows are of the same tree, which nobody has replaced since it was recorded. */
export function isSameTree(
  a: Pick<InstalledVersion, 'tree_digest' | 'tree_record'>,
  b: Pick<InstalledVersion, 'tree_digest' | 'tree_record'>,
): boolean {
  return a.tree_digest !== null && a.tree_digest === b.tree_digest && a.tree_record === b.tree_record
}

/** Records which snapshots could not be removed yet. Durable when it returns. */
export async function recordDiscarded(layout: Layout, discard: readonly string[]): Promise<void> {
  await writeRecord(layout, { ...readHostRecord(layout), discard: [...discard] })
}

/** Records which services could not be restored. Durable when it returns. */
export async function recordUnrestored(layout: Layout, unrestored: readonly string[]): Promise<void> {
  await writeRecord(layout, { ...readHostRecord(layout), unrestored: [...unrestored] })
}

async function writeRecord(layout: Layout, { installed, ...lists }: HostRecord): Promise<void> {
  const optional = Object.fromEntries(Object.entries(lists).filter(([, list]) => list.length > 0))
  // Parsed, so that the keys have one order, and the same rows are always the same bytes.
  const record = fileSchema.parse({ schema: 1, installed, ...optional })
  await replaceFile(layout.installed, `${JSON.stringify(record, null, 2)}\n`)
}

function snapshotPathsOf(row: Pick<RemovedRow, 'kind' | 'id' | 'snapshots'>): string[] {
  return row.snapshots.map(({ name }) => `.hub-deploy/snapshots/${nameOf(row)}/${name}`)
}

/** The row of a part. */
export function findInstalled<Row extends RemovedRow>(rows: readonly Row[], part: PartName): Row | undefined {
  return rows.find(row => nameOf(row) === placeName(part))
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

/** Which part a row is about. */
export function partOf({ kind, id }: Pick<RemovedRow, 'kind' | 'id'>): PartName {
  return { shelf: shelfOf(kind), id }
}

/** Where a row's plugin or service is installed. */
export function placeOf(row: Pick<InstalledRow, 'kind' | 'id' | 'directory'>): Place {
  const part = partOf(row)
  return { ...part, directory: row.directory ?? usualDirectory(part.shelf) }
}

/** The directories that plugins are or were in, by our own record. */
export function recordedDirectories({ installed, removed, projects }: HostRecord): string[] {
  const parts = [...installed, ...removed, ...projects.flatMap(project => project.parts)]
  return [...new Set(parts.filter(({ kind }) => kind === 'plugin').map(part => placeOf(part).directory))]
}

/** What a row says of its place. */
export function directoryIn({ shelf, directory }: Place): Pick<InstalledRow, 'directory'> {
  return directory === usualDirectory(shelf) ? {} : { directory }
}

export function shelfOf(kind: 'plugin' | 'service'): Shelf {
  return kind === 'plugin' ? 'plugins' : 'extensions'
}

function inOrder<Row extends RemovedRow>(rows: readonly Row[]): Row[] {
  return rows.toSorted((a, b) => nameOf(a).localeCompare(nameOf(b), 'en'))
}

function isUnique(names: readonly string[]): boolean {
  return new Set(names).size === names.length
}

function nameOf(row: Pick<RemovedRow, 'kind' | 'id'>): string {
  return placeName(partOf(row))
}
