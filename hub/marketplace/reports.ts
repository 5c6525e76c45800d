import { randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { z } from 'zod'
import { kindSchema, labelSchema, slugSchema, statusSchema, utcTimeSchema, versionSchema } from '../names.ts'
import { HOST, newest, REPORTS_NEVER_GO } from '../schema.ts'
import { inTransaction, type Store } from '../store.ts'
import type { ListingId } from './catalogue.ts'
import { applyPruning, applyReports } from './fleet.ts'

const MAX_ERROR_CHARS = 20_000
/** A batch takes tens of milliseconds, and a hub that waits to write tries again within the pause. */
const PRUNED_AT_ONCE = 5_000
const PAUSE_MS = 100

export const reportSchema = z.object({
  kind: kindSchema,
  slug: slugSchema,
  version: versionSchema,
  status: statusSchema,
  started_at: utcTimeSchema,
  completed_at: utcTimeSchema,
  host_id: labelSchema,
  repo: labelSchema.nullish().transform(repo => repo ?? null),
  error_message: z
    .string()
    .max(MAX_ERROR_CHARS, { error: `must have at most ${MAX_ERROR_CHARS} characters` })
    .nullish()
    // Some SQLite functions end a text at a NUL.
    .transform(message => message?.replaceAll('\0', '\uFFFD') ?? null),
})
export type Report = z.output<typeof reportSchema>

const storedReportSchema = z.object({
  id: z.string(),
  deployer_id: z.string(),
  kind: kindSchema,
  slug: z.string(),
  version: z.string(),
  host_id: z.string(),
  status: statusSchema,
  repo: z.string().nullable(),
  error_message: z.string().nullable(),
  started_at: z.string(),
  completed_at: z.string(),
  created_at: z.string(),
})
export type StoredReport = z.infer<typeof storedReportSchema>

/** The newest report of a host, with the running version, which is the version of the host's newest success. */
const hostReportSchema = storedReportSchema.extend({ running_version: z.string().nullable() })
export type HostReport = z.infer<typeof hostReportSchema>

const COLUMNS = storedReportSchema.keyof().options.join(', ')
const PLACES = storedReportSchema
  .keyof()
  .options.map(column => `:${column}`)
  .join(', ')

/** Appends the report to the journal, for the owner of the key that sent it (contract 2.1, "Deployment report"). */
export function recordReport(store: Store, owner: string, report: Report): StoredReport {
  const row = { ...report, id: randomUUID(), deployer_id: owner, created_at: new Date().toISOString() }
  return inTransaction(store, () => {
    const stored = store.db.prepare(`INSERT INTO reports (${COLUMNS}) VALUES (${PLACES}) RETURNING ${COLUMNS}`).get(row)
    applyReports(store)
    return storedReportSchema.parse(stored)
  })
}

/**
 * Returns the newest report of each host, with the host's running version (contract 4.1, fleet view). Without `owner`,
 * returns the hosts of all owners. Of most reports, reads only the host, from an index: this takes 20 ms for 100,000
 * reports from 1,000 hosts.
 */
export function listHosts(store: Store, { kind, slug }: ListingId, owner?: string): HostReport[] {
  const ofOwner = owner === undefined ? '' : ' AND deployer_id = :owner'
  const values = { kind, slug, ...(owner === undefined ? {} : { owner }) }
  const hosts = `SELECT DISTINCT ${HOST.join(', ')} FROM reports WHERE kind = :kind AND slug = :slug${ofOwner}`
  const rows = store.db
    .prepare(
      `SELECT ${COLUMNS}, ${RUNNING_VERSION} FROM reports
       WHERE seq IN (SELECT (${newest('seq', 'hosts')}) FROM (${hosts}) AS hosts) ORDER BY host_id, deployer_id`,
    )
    .all(values)
  return rows.map(row => hostReportSchema.parse(row))
}

/** Which reports to list; undefined means all. */
interface ReportFilter {
  readonly owner?: string | undefined
  readonly kind?: string | undefined
  readonly slug?: string | undefined
  readonly limit: number
}

/** Returns the newest reports first, in the order of their arrival. */
export function listReports(store: Store, { owner, kind, slug, limit }: ReportFilter): StoredReport[] {
  const wanted = Object.entries({ deployer_id: owner, kind, slug }).flatMap(([column, value]) =>
    value === undefined ? [] : [[column, value]],
  )
  const condition = wanted.map(([column]) => `${column} = ?`).join(' AND ') || 'TRUE'
  const rows = store.db
    .prepare(`SELECT ${COLUMNS} FROM reports WHERE ${condition} ORDER BY seq DESC LIMIT ?`)
    .all(...wanted.map(([, value]) => String(value)), limit)
  return rows.map(row => storedReportSchema.parse(row))
}

/**
 * Removes the reports that this hub received before a given time. Keeps the newest report and the newest success of
 * each host, so that the host's running version stays known. Keeps neither for a name that this hub never published and
 * no host ever ran, because such a name is a mistake. Works in batches; between two batches, a running hub may write.
 * Resolves to the number of removed reports.
 */
export async function pruneReports(store: Store, before: Date): Promise<number> {
  const last = Number(store.db.prepare('SELECT max(seq) AS seq FROM reports').get()?.['seq'] ?? 0)
  let removed = 0
  for (let from = 0; from < last; from += PRUNED_AT_ONCE) {
    if (from > 0) await setTimeout(PAUSE_MS)
    removed += inTransaction(store, () => pruneBatch(store, before, from))
  }
  return removed
}

function pruneBatch(store: Store, before: Date, from: number): number {
  store.db.exec('DROP TRIGGER reports_never_go')
  const { changes } = store.db
    .prepare(
      `DELETE FROM reports WHERE seq > :from AND seq <= :to AND created_at < :before
         AND (seq <> (${newest('seq', 'reports')}) OR ${IS_MISTAKE})
         AND seq IS NOT (${newest('seq', 'reports', { isSuccess: true })})`,
    )
    .run({ from, to: from + PRUNED_AT_ONCE, before: before.toISOString() })
  applyPruning(store)
  store.db.exec(REPORTS_NEVER_GO)
  return Number(changes)
}

/** SQL: the running version of a report's host. */
const RUNNING_VERSION = `CASE reports.status WHEN 'success' THEN reports.version
  ELSE (${newest('version', 'reports', { isSuccess: true })}) END AS running_version`

/** SQL: true for a report of a name that was never published here and never ran on any host. */
const IS_MISTAKE = `(NOT EXISTS (SELECT 1 FROM listings WHERE listings.kind = reports.kind AND listings.slug = reports.slug)
  AND NOT EXISTS (SELECT 1 FROM reports AS good
                  WHERE good.kind = reports.kind AND good.slug = reports.slug AND good.status = 'success'))`
