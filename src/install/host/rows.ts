import { z } from 'zod/mini'
import type { PluginYaml } from '../../core/content/plugin-yaml.ts'
import {
  idSchema,
  kindSchema,
  PARTS_DIRECTORY_PATTERN,
  pluginsDirectorySchema,
  projectIdSchema,
  slugSchema,
  versionSchema,
} from '../../core/identifiers.ts'
import type { PartTree } from '../files/extracted-tree.ts'
import { nameOf } from './layout.ts'

/** The fields of our own state files, parsed as strictly as a hub's answer, because some of them become paths. */

const ID_PATTERN = '[a-z0-9][a-z0-9_.-]{0,127}'
/** Pattern of a part's name, `<shelf>/<id>`, without anchors. */
export const PART_NAME_PATTERN = `(?:plugins|extensions)/${ID_PATTERN}`
/** Pattern of the path of an installed part, relative to the project root, without anchors. */
export const PLACE_PATTERN = `${PARTS_DIRECTORY_PATTERN}/${ID_PATTERN}`
const SNAPSHOT_NAME_PATTERN = '[1-9][0-9]{0,14}-[0-9A-Za-z][0-9A-Za-z.+_-]{0,127}'
const NAME_PATTERN = '(?!\\.{1,2}(?:/|$))[^/\\p{Cc}]{1,255}'
/** Pattern of the rest of a path after a directory: no empty part, no `.` or `..`, no control character. */
export const BELOW_PATTERN = `(?:/${NAME_PATTERN})+`
/** Pattern of the path of a snapshot, relative to the project root, without anchors. */
export const SNAPSHOT_PATTERN = `\\.hub-deploy/snapshots/${PART_NAME_PATTERN}/${SNAPSHOT_NAME_PATTERN}`

const timeError = { error: 'must be a time such as 2026-01-02T03:04:05.678Z' }
/** A time that exists, in ISO 8601 in UTC, as this action writes it. */
export const timeSchema = z.string().check(
  z.regex(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/, { ...timeError, abort: true }),
  z.refine(text => !Number.isNaN(Date.parse(text)), timeError),
)

const countError = { error: 'must be a whole number above 0' }
/** The number of an installation, or of all of them. */
export const countSchema = z.int(countError).check(z.positive(countError))

/** SHA-256 as this action writes it: lower case. */
const digestSchema = z.string().check(z.regex(/^[0-9a-f]{64}$/, { error: 'must be 64 hex digits in lower case' }))

/** The marketplace slug of a plugin or service, or the id of a project. */
const originSlugSchema = z.union([slugSchema, projectIdSchema], {
  error: 'must be a marketplace slug or the id of a project',
})

/** One line of at most 2,000 characters, which is displayed or compared but never used as a path. */
const lineSchema = z
  .string()
  .check(z.regex(/^\P{Cc}{0,2000}$/u, { error: 'must be one line of at most 2000 characters' }))

/** The name of a snapshot's directory, `<n>-<version>`, without its path. */
export const snapshotNameSchema = z.string().check(
  z.regex(new RegExp(`^${SNAPSHOT_NAME_PATTERN}$`), {
    error: 'must be <number>-<version>, the name of a directory',
  }),
)

/** A path below a directory, with `/` between its parts. */
const innerPathSchema = z.string().check(
  z.regex(new RegExp(`^${NAME_PATTERN}(?:/${NAME_PATTERN})*$`, 'u'), {
    error: 'must be a relative path without empty parts, ".", ".." or control characters',
  }),
)

/** The directory of a snapshot, relative to the project root. */
export const snapshotPathSchema = z.string().check(
  z.regex(new RegExp(`^${SNAPSHOT_PATTERN}$`), {
    error: 'must be the path of a snapshot below .hub-deploy/snapshots',
  }),
)

const installedVersionSchema = z.object({
  version: z.nullable(versionSchema),
  /** The version of the project that contained this version; null for a part that was deployed by itself. */
  project_version: z.nullable(versionSchema),
  /** Digest of the artifact; null for a version that we did not install ourselves. */
  artifact_sha256: z.nullable(digestSchema),
  tree_digest: z.nullable(digestSchema),
  /** The name of the record of the version's files; absent if there is no such record. */
  tree_record: z.exactOptional(digestSchema),
  /**
   * The number of the installation that first put this version here: the host counts its installations, and all parts
   * of one have the same number. Absent if the host did not count yet, or if this action did not install the version.
   */
  installation: z.exactOptional(countSchema),
  installed_at: z.nullable(timeSchema),
  deployment_id: z.nullable(z.uuid({ error: 'must be a UUID' })),
  run_url: z.nullable(lineSchema),
  /**
   * The origin of the version's files, if the artifact refers to them but does not contain them: a marketplace or a
   * repository, and a digest or commit.
   */
  source: z.exactOptional(z.object({ from: lineSchema, id: lineSchema })),
})
export type SourceRecord = NonNullable<z.infer<typeof installedVersionSchema>['source']>
export type InstalledVersion = z.infer<typeof installedVersionSchema>

/**
 * Returns the number of the newest installation among versions; 0 if none has a number, because a host that counts its
 * installations gives every later version a number.
 */
export function newestInstallation(versions: readonly Pick<InstalledVersion, 'installation'>[]): number {
  return versions.reduce((newest, { installation = 0 }) => Math.max(newest, installation), 0)
}

/** A version of a part that came from a source, and that this host has installed or retained. */
export interface SourcedVersion {
  readonly version: string | null
  readonly source: SourceRecord
  /** True if the version consists of this fetched tree, apart from the part's stub and the host's own files. */
  readonly hasContent?: (fetched: {
    readonly staged: string
    readonly tree: PartTree
    readonly pluginYaml: PluginYaml | undefined
  }) => boolean
}

/** The history of a part's place on this host. */
export interface SourcePast {
  /** The version that is installed there now; undefined unless this project installed it from a source. */
  readonly installed: SourcedVersion | undefined
  /** The versions that this project has installed there from any source, and that are still there or retained. */
  readonly history: readonly SourcedVersion[]
  /**
   * True if this project installed exactly this content on this host and later replaced it, according to the host's
   * records and audit log (`wasSupplyReplaced`).
   */
  wasReplaced(source: SourceRecord): boolean
}

/** A keep-path of any length. */
export const keepPathSchema = z.string().check(
  z.regex(/^(?!(?:.*\/)?\.{0,2}(?:\/|$))\P{Cc}+$/u, {
    error: 'must be a relative path without empty parts, ".", ".." or control characters',
  }),
)

/** A plugin or service of the marketplace, or a project. The slug of a project is its id. */
const originSchema = z.object({ contract: z.enum(['marketplace', 'project']), slug: originSlugSchema })
export type Origin = z.infer<typeof originSchema>

const snapshotSchema = z.extend(installedVersionSchema, {
  /** The name of the snapshot's directory, `<n>-<version>`. */
  name: snapshotNameSchema,
  /** Present only if the snapshot's origin differs from the row's own. */
  origin: z.exactOptional(originSchema),
  /** The time at which the version became a snapshot; absent if unknown. */
  retained_at: z.exactOptional(timeSchema),
  /**
   * Whether the snapshot's files had been changed on this host. If so, the tree digest and the record, if any, are
   * those of the installed files as they were then. Files that were added on this host are in neither.
   */
  modified: z.exactOptional(z.literal(true)),
  /** The keep-paths that stayed in the snapshot, because no newer version took over their files. */
  kept_paths: z.exactOptional(z.array(innerPathSchema)),
  /** The paths that the snapshot's tree record leaves out, or that the snapshot may have lost to its successor. */
  keep_paths: z.array(keepPathSchema),
})
export type SnapshotRow = z.infer<typeof snapshotSchema>

/** A service to restore, by its name in state files: the id of a part, or null for the project-wide unit. */
const pendingServiceSchema = z.object({ part: z.nullable(idSchema), was_running: z.boolean() })
export type PendingService = z.infer<typeof pendingServiceSchema>

export const installedRowSchema = z.extend(installedVersionSchema, {
  contract: originSchema.shape.contract,
  kind: kindSchema,
  slug: originSchema.shape.slug,
  id: idSchema,
  /** The directory of plugins that the part is in; absent for `plugins`, and for a service. */
  directory: z.exactOptional(pluginsDirectorySchema),
  /** The paths that the part's tree record leaves out, because they belong to the host. */
  keep_paths: z.array(keepPathSchema),
  /**
   * Whether the part is a restored snapshot that had been modified. If so, the part's files are not those of the
   * artifact.
   */
  modified: z.exactOptional(z.literal(true)),
  /**
   * A service of the part could not be restarted or checked after a rollback: the next run whose host config names a
   * service for the part does that.
   */
  service_pending: z.exactOptional(z.literal(true)),
  /** Which services are pending; absent if only the host config says which service runs the part. */
  pending_services: z.exactOptional(z.array(pendingServiceSchema).check(z.minLength(1))),
  /** Retained previous versions, newest last. */
  snapshots: z
    .array(snapshotSchema)
    .check(z.refine(rows => isUnique(rows.map(({ name }) => name)), { error: 'must list each snapshot once' })),
})
export type InstalledRow = z.infer<typeof installedRowSchema>

/** A part that a later version of its project no longer contains, and the snapshots retained from that part. */
export const removedRowSchema = z.pick(installedRowSchema, {
  contract: true,
  kind: true,
  slug: true,
  id: true,
  directory: true,
  snapshots: true,
})
export type RemovedRow = z.infer<typeof removedRowSchema>

/** One version of a project: all its parts, as `installed.json` recorded them when this version was installed. */
export const projectVersionSchema = z.object({
  slug: originSchema.shape.slug,
  version: versionSchema,
  parts: z
    .array(
      z.omit(installedRowSchema, {
        contract: true,
        slug: true,
        keep_paths: true,
        service_pending: true,
        pending_services: true,
        snapshots: true,
      }),
    )
    .check(z.refine(parts => isUnique(parts.map(nameOf)), { error: 'must list each part once' })),
})
export type ProjectVersion = z.infer<typeof projectVersionSchema>
export type ProjectPart = ProjectVersion['parts'][number]

/** True if no name occurs twice. */
export function isUnique(names: readonly string[]): boolean {
  return new Set(names).size === names.length
}

/** True if a row is from this origin. */
export function isFrom({ contract, slug }: Origin, origin: Origin): boolean {
  return contract === origin.contract && slug === origin.slug
}

/** Returns the snapshots in a row that are from this origin, even if the row is now from another origin. */
export function snapshotsFrom(row: RemovedRow, origin: Origin): SnapshotRow[] {
  return row.snapshots.filter(snapshot => isFrom(snapshot.origin ?? row, origin))
}

/** Returns the snapshots in a row, as a row of the origin `to` records them. */
export function handOver(row: RemovedRow, to: Origin): SnapshotRow[] {
  return row.snapshots.map(({ origin, ...snapshot }) => {
    const { contract, slug } = origin ?? row
    return isFrom({ contract, slug }, to) ? snapshot : { ...snapshot, origin: { contract, slug } }
  })
}
