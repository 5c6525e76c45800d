import { z } from 'zod/mini'
import { idSchema, kindSchema, versionSchema } from '../../../core/identifiers.ts'
import { pluginsDirectorySchema } from '../../../core/plugins-directory.ts'
import {
  digestSchema,
  innerPathSchema,
  lineSchema,
  originSlugSchema,
  snapshotNameSchema,
  timeSchema,
} from '../record-fields.ts'
import { nameOf } from './row-place.ts'

const installedVersionSchema = z.object({
  version: z.nullable(versionSchema),
  /** The version of the project that contained this version; null for a part that was deployed by itself. */
  project_version: z.nullable(versionSchema),
  /** Digest of the artifact; null for a version that we did not install ourselves. */
  artifact_sha256: z.nullable(digestSchema),
  tree_digest: z.nullable(digestSchema),
  /**
   * The name of the record of the version's files; absent if there is no such record, or if an earlier version of the
   * action wrote that record.
   */
  tree_record: z.exactOptional(digestSchema),
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

/** A keep-path of any length. */
const keepPathSchema = z.string().check(
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
  /**
   * Whether the snapshot's files had been changed on this host. If so, the tree digest and the record, if any, are
   * those of the changed files.
   */
  modified: z.exactOptional(z.literal(true)),
  /** The keep-paths that stayed in the snapshot, because no newer version took over their files. */
  kept_paths: z.exactOptional(z.array(innerPathSchema)),
  /**
   * The paths that the snapshot's tree record leaves out, or that the snapshot may have lost to its successor; absent
   * from rows that earlier versions of the action wrote.
   */
  keep_paths: z.exactOptional(z.array(keepPathSchema)),
})
export type SnapshotRow = z.infer<typeof snapshotSchema>

export const installedRowSchema = z.extend(installedVersionSchema, {
  contract: originSchema.shape.contract,
  kind: kindSchema,
  slug: originSchema.shape.slug,
  id: idSchema,
  /** The directory of plugins that the part is in; absent for `plugins`, and for a service. */
  directory: z.exactOptional(pluginsDirectorySchema),
  /**
   * The paths that the part's tree record leaves out, because they belong to the host; absent from rows that
   * earlier versions of the action wrote.
   */
  keep_paths: z.exactOptional(z.array(keepPathSchema)),
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
