import { z } from 'zod/mini'
import { ArtifactError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import { hostIdSchema, type Kind, versionSchema } from '../core/identifiers.ts'

/** What a hub says of one host. Every text in it is harmless, and none is long. */
export interface HostReport {
  readonly hostId: string
  /** What the host runs; null where nobody knows. */
  readonly version: string | null
  /** What the reported deployment was of. */
  readonly attempted: string | null
  readonly status: 'success' | 'failed' | 'rolled_back' | 'unknown'
  /** ISO 8601 in UTC, by the host's own clock; null where the hub names no time. */
  readonly completedAt: string | null
  readonly error: string | null
}

/** The reports in a hub's answer. */
export interface HostReports {
  /** One for each host. */
  readonly reports: readonly HostReport[]
  /** Sentences about what was left out. */
  readonly notes: readonly string[]
  /** How many reports of this plugin or service are of a host that cannot be identified. */
  readonly unusable: number
}

export interface ReportSubject {
  readonly kind: Kind
  readonly slug: string
}

const MAX_REPORTS = 100_000
const MAX_ERROR_CHARS = 300

const rowSchema = z.lazy(() =>
  z.object({
    host_id: hostIdSchema,
    kind: z.string(),
    slug: z.string(),
    status: z.catch(z.enum(['success', 'failed', 'rolled_back', 'unknown']), 'unknown'),
    version: z.catch(z.nullable(versionSchema), null),
    running_version: z.catch(z.nullable(versionSchema), null),
    completed_at: z.catch(z.nullable(timeSchema), null),
    error_message: z.catch(z.nullable(z.string()), null),
  }),
)
type Row = z.infer<typeof rowSchema>

/** ISO 8601; without an offset it counts as UTC, as which every report is sent. */
const timeSchema = z
  .pipe(
    z.string().check(z.regex(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})?$/)),
    z.transform(text => Date.parse(/(?:Z|[+-]\d{2}:\d{2})$/.test(text) ? text : `${text}Z`)),
  )
  .check(z.refine(time => !Number.isNaN(time)))

/**
 * Reads the newest report of each host from a hub's answer. Ignores reports of other plugins and services, and all but
 * the newest of a host that is listed twice; counts what does not name a host. Throws ArtifactError `bad_response` for
 * anything but a list, and for one of over 100,000 reports. `redact` removes secrets from a text.
 */
export function parseHostReports(body: unknown, subject: ReportSubject, redact: (text: string) => string): HostReports {
  if (!Array.isArray(body)) throw unusableAnswer('a JSON list of reports, one for each host')
  if (body.length > MAX_REPORTS) throw unusableAnswer(`at most ${MAX_REPORTS} reports`)
  const rows = body.map(row => rowSchema.safeParse(row).data)
  const own = rows.filter(row => row === undefined || (row.kind === subject.kind && row.slug === subject.slug))
  const usable = own.filter(row => row !== undefined)
  const newest = newestOfEach(usable)
  const counts = {
    foreign: rows.length - own.length,
    repeated: usable.length - newest.length,
    unusable: own.length - usable.length,
  }
  return {
    reports: newest.map(row => reportOf(row, redact)),
    notes: notesOn(counts, subject),
    unusable: counts.unusable,
  }
}

/** Where two are of the same time, the one that is no success. */
function newestOfEach(rows: readonly Row[]): Row[] {
  const newest = new Map<string, Row>()
  for (const row of rows) {
    const known = newest.get(row.host_id)
    if (known === undefined || isNewer(row, known)) newest.set(row.host_id, row)
  }
  return [...newest.values()]
}

function isNewer(row: Row, known: Row): boolean {
  const [time, before] = [row.completed_at ?? Number.NEGATIVE_INFINITY, known.completed_at ?? Number.NEGATIVE_INFINITY]
  return time === before ? row.status !== 'success' : time > before
}

/** A host whose last deployment did not succeed runs what it ran before, which some hubs know. */
function reportOf(row: Row, redact: (text: string) => string): HostReport {
  const { status, completed_at: time, error_message: error } = row
  // A hub may send a secret back as anything.
  const [attempted, running] = [row.version, row.running_version].map(version =>
    version === null || redact(version) !== version ? null : version,
  ) as [string | null, string | null]
  return {
    hostId: redact(row.host_id),
    version: status === 'success' ? attempted : running,
    attempted,
    status,
    completedAt: time === null ? null : new Date(time).toISOString(),
    error: error === null || error === '' ? null : cleanForeignText(redact(error), MAX_ERROR_CHARS),
  }
}

function notesOn(
  { foreign, repeated, unusable }: Record<'foreign' | 'repeated' | 'unusable', number>,
  { kind, slug }: ReportSubject,
): string[] {
  return [
    ...(foreign === 0
      ? []
      : [
          `The hub also listed ${foreign} reports of other plugins or services than ${kind} ${slug}, which were ignored.`,
        ]),
    ...(repeated === 0
      ? []
      : [
          `The hub listed hosts more than once; the newest report of each counts, and ${repeated} others were ignored.`,
        ]),
    ...(unusable === 0 ? [] : [`The hub listed ${unusable} reports without a usable kind, slug and host_id.`]),
  ]
}

function unusableAnswer(expected: string): ArtifactError {
  return new ArtifactError(
    'bad_response',
    `The hub's list of hosts is not ${expected}: check hub-url and deployments-url, or report this to the hub's operator.`,
  )
}
