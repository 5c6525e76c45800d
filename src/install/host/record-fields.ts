import { z } from 'zod/mini'
import { projectIdSchema, slugSchema } from '../../core/identifiers.ts'
import { PARTS_DIRECTORY_PATTERN } from '../../core/plugins-directory.ts'

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

/** ISO 8601 in UTC, as this action writes it. */
export const timeSchema = z.string().check(
  z.regex(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/, {
    error: 'must be a time such as 2026-01-02T03:04:05.678Z',
  }),
)

/** SHA-256 as this action writes it: lower case. */
export const digestSchema = z
  .string()
  .check(z.regex(/^[0-9a-f]{64}$/, { error: 'must be 64 hex digits in lower case' }))

/** The marketplace slug of a plugin or service, or the id of a project. */
export const originSlugSchema = z.union([slugSchema, projectIdSchema], {
  error: 'must be a marketplace slug or the id of a project',
})

/** One line of at most 2,000 characters, which is displayed or compared but never used as a path. */
export const lineSchema = z
  .string()
  .check(z.regex(/^\P{Cc}{0,2000}$/u, { error: 'must be one line of at most 2000 characters' }))

/** The name of a snapshot's directory, `<n>-<version>`, without its path. */
export const snapshotNameSchema = z.string().check(
  z.regex(new RegExp(`^${SNAPSHOT_NAME_PATTERN}$`), {
    error: 'must be <number>-<version>, the name of a directory',
  }),
)

/** A path below a directory, with `/` between its parts. */
export const innerPathSchema = z.string().check(
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
