import { z } from 'zod/mini'
import { ArtifactError } from '../core/errors.ts'
import { hostIdSchema, type Kind, versionSchema } from '../core/identifiers.ts'
import { cleanForeignText, countInWords } from '../core/text.ts'
import { withoutLeadingV } from '../core/trust/versions.ts'

/** A hub's report about one host. Every text in it is cleaned and short. */
export interface HostReport {
  readonly hostId: string
  /** The version that the host runs; null if unknown. */
  readonly version: string | null
  /** The version that the reported deployment was to install; null if unknown. */
  readonly attempted: string | null
  readonly status: 'success' | 'failed' | 'rolled_back' | 'unknown'
  /** ISO 8601 in UTC, by the host's own clock; null if the hub gives no valid time. */
  readonly completedAt: string | null
  /** When the hub received the report, ISO 8601 in UTC, by the hub's clock; null if the hub gives no valid time. */
  readonly receivedAt: string | null
  readonly error: string | null
  /** True if several reports may be the host's last one and disagree, so that nobody knows what the host runs. */
  readonly isContradicted: boolean
}

/** The reports in a hub's answer. */
export interface HostReports {
  /** One report for each host. */
  readonly reports: readonly HostReport[]
  /** Sentences about reports that were ignored, contradict each other, or have a time in the future. */
  readonly notes: readonly string[]
  /** The number of reports without a usable kind, slug and host_id, which may be about any host. */
  readonly unusable: number
}

export interface ReportSubject {
  readonly kind: Kind
  readonly slug: string
}

/** The settings for reading an answer. */
export interface Reading {
  /** Removes secrets from a text. */
  readonly redact: (text: string) => string
  /** In milliseconds since 1970. */
  readonly now: number
}

/** The tolerance for a host's clock that is ahead of ours. */
const CLOCK_TOLERANCE_MS = 300_000
const MAX_NAMED_HOSTS = 5
const MAX_NAME_CHARS = 64

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
    completed_at: z.catch(z.nullable(hubTimeSchema), null),
    created_at: z.catch(z.nullable(hubTimeSchema), null),
    error_message: z.catch(z.nullable(z.string()), null),
  }),
)
type Row = z.infer<typeof rowSchema>

/** ISO 8601. A time without an offset counts as UTC, because every report is sent in UTC. */
const hubTimeSchema = z
  .pipe(
    z.string().check(z.regex(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})?$/)),
    z.transform(text => Date.parse(/(?:Z|[+-]\d{2}:\d{2})$/.test(text) ? text : `${text}Z`)),
  )
  .check(z.refine(time => !Number.isNaN(time)))

/** Returns when a host reported, as the hub says; without the hub's own time, as the host said. */
export function reportTimeOf({ receivedAt, completedAt }: HostReport): string | null {
  return receivedAt ?? completedAt
}

/** Returns a time in milliseconds; undefined if there is none, or if it is in the future, so that it says nothing. */
export function credibleTime(time: string | null, now: number): number | undefined {
  return credible(Date.parse(time ?? ''), now)
}

/**
 * Reads the last report of each host from a hub's answer. Ignores reports of other plugins and services, and older
 * reports of a host that is listed more than once. Counts reports without a usable kind, slug and host_id. If several
 * reports may be a host's last one and disagree, the host's version is unknown. Throws ArtifactError `bad_response` for
 * anything but a list, and for a list of over 100,000 reports.
 */
export function parseHostReports(body: unknown, subject: ReportSubject, reading: Reading): HostReports {
  if (!Array.isArray(body)) throw unusableHostList('a JSON list of reports, one for each host')
  if (body.length > MAX_REPORTS) throw unusableHostList(`a JSON list of at most ${MAX_REPORTS} reports`)
  const rows = body.map(row => rowSchema.safeParse(row).data)
  const own = rows.filter(row => row === undefined || (row.kind === subject.kind && row.slug === subject.slug))
  const usable = own.filter(row => row !== undefined)
  const reports = [...Map.groupBy(usable, row => row.host_id).values()].map(rows => lastOf(rows, reading))
  const counts = {
    foreign: rows.length - own.length,
    repeated: usable.length - reports.length,
    unusable: own.length - usable.length,
  }
  const named = {
    contradicted: reports.filter(({ isContradicted }) => isContradicted).map(({ hostId }) => hostId),
    early: [...new Set(usable.filter(row => isEarly(row, reading.now)).map(row => reading.redact(row.host_id)))],
  }
  return { reports, notes: [...notesOn(counts, subject), ...notesOnHosts(named)], unusable: counts.unusable }
}

function credible(time: number, now: number): number | undefined {
  return Number.isNaN(time) || time > now + CLOCK_TOLERANCE_MS ? undefined : time
}

function isEarly({ completed_at: completed, created_at: received }: Row, now: number): boolean {
  const time = received ?? completed
  return time !== null && credible(time, now) === undefined
}

/**
 * The last of one host's reports that the hub received; the host's own clock does not count. A report without a
 * credible time may be newer than any other.
 */
function lastOf(rows: readonly Row[], { redact, now }: Reading): HostReport {
  const timed = rows.map(row => ({ row, time: credible(row.created_at ?? Number.NaN, now) }))
  const newest = timed.reduce((max, { time = max }) => Math.max(max, time), Number.NEGATIVE_INFINITY)
  const last = timed.find(({ time }) => time === newest)?.row ?? (rows[0] as Row)
  const rivals = timed.filter(({ time = newest }) => time === newest)
  const report = reportOf(last, redact)
  if (new Set(rivals.map(({ row }) => statementOf(row))).size <= 1) return report
  return { ...report, version: null, attempted: null, status: 'unknown', error: null, isContradicted: true }
}

/** The content of a report without its message and its time. */
function statementOf({ status, version, running_version: running }: Row): string {
  const versions = status === 'success' ? [version] : [version, running]
  return JSON.stringify([status, ...versions.map(text => text && withoutLeadingV(text))])
}

/** A host whose last deployment did not succeed still runs its earlier version, which some hubs know. */
function reportOf(row: Row, redact: (text: string) => string): HostReport {
  const { status, error_message: error } = row
  // A hub may send a secret back in any field.
  const [attempted, running] = [row.version, row.running_version].map(version =>
    version === null || redact(version) !== version ? null : version,
  ) as [string | null, string | null]
  return {
    hostId: redact(row.host_id),
    version: status === 'success' ? attempted : running,
    attempted,
    status,
    completedAt: isoOf(row.completed_at),
    receivedAt: isoOf(row.created_at),
    error: error === null || error === '' ? null : cleanForeignText(redact(error), MAX_ERROR_CHARS),
    isContradicted: false,
  }
}

function isoOf(time: number | null): string | null {
  return time === null ? null : new Date(time).toISOString()
}

function notesOn(
  { foreign, repeated, unusable }: Record<'foreign' | 'repeated' | 'unusable', number>,
  { kind, slug }: ReportSubject,
): string[] {
  return [
    ...(foreign === 0
      ? []
      : [
          `The hub also listed ${countInWords(foreign, 'report')} of plugins or services other than ${kind} ${slug}; ${foreign === 1 ? 'it was' : 'they were'} ignored.`,
        ]),
    ...(repeated === 0
      ? []
      : [
          `The hub listed hosts more than once; the newest report of each counts, and ${countInWords(repeated, 'other')} ${repeated === 1 ? 'was' : 'were'} ignored.`,
        ]),
    ...(unusable === 0
      ? []
      : [`The hub listed ${countInWords(unusable, 'report')} without a usable kind, slug and host_id.`]),
  ]
}

function notesOnHosts({ contradicted, early }: Record<'contradicted' | 'early', readonly string[]>): string[] {
  return [
    ...(contradicted.length === 0
      ? []
      : [
          `For each of these hosts, the hub has reports that contradict each other, so neither the latest report nor the version is known: ${nameHostIds(contradicted)}.`,
        ]),
    ...(early.length === 0
      ? []
      : [
          `Some reports have a time in the future, so they count as reports without a time. Check this runner's clock and the clocks of these hosts: ${nameHostIds(early)}.`,
        ]),
  ]
}

function nameHostIds(ids: readonly string[]): string {
  const names = ids.slice(0, MAX_NAMED_HOSTS).map(id => cleanForeignText(id, MAX_NAME_CHARS))
  const more = ids.length - names.length
  return `${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

function unusableHostList(expected: string): ArtifactError {
  return new ArtifactError(
    'bad_response',
    `The hub's list of hosts is not ${expected}: check hub-url, and deployments-url if it is set, or report this to the hub's operator.`,
  )
}
