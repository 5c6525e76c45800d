import { randomUUID } from 'node:crypto'
import { z } from 'zod'
import { kindSchema, labelSchema, slugSchema, versionSchema } from '../names.ts'
import { statusSchema, utcTimeSchema } from '../report-fields.ts'
import type { Store } from '../store.ts'
import type { ListingId } from './catalogue.ts'

const MAX_ERROR_CHARS = 20_000

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
    .transform(message => message ?? null),
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

const COLUMNS = storedReportSchema.keyof().options.join(', ')
const PLACES = storedReportSchema
  .keyof()
  .options.map(column => `:${column}`)
  .join(', ')

/** Appends the report to the journal, for the owner of the key that sent it (contract 2.1, "Deployment report"). */
export function recordReport(store: Store, owner: string, report: Report): StoredReport {
  const row = { ...report, id: randomUUID(), deployer_id: owner, created_at: new Date().toISOString() }
  const stored = store.db.prepare(`INSERT INTO reports (${COLUMNS}) VALUES (${PLACES}) RETURNING ${COLUMNS}`).get(row)
  return storedReportSchema.parse(stored)
}

/**
 * The newest report of each host, of one owner or of all (contract 4.1, fleet view). Newest means completed last by
 * the host's own clock, so that a report delivered late does not hide a newer one.
 */
export function listHosts(store: Store, { kind, slug }: ListingId, owner?: string): StoredReport[] {
  if (owner === undefined) return newestReports(store, 'kind = ? AND slug = ?', [kind, slug])
  return newestReports(store, 'kind = ? AND slug = ? AND deployer_id = ?', [kind, slug, owner])
}

/** The newest report of each host, plugin or service, and owner. */
export function listFleet(store: Store): StoredReport[] {
  return newestReports(store, 'TRUE', [])
}

function newestReports(store: Store, condition: string, values: string[]): StoredReport[] {
  const rows = store.db
    .prepare(
      `SELECT ${COLUMNS} FROM (
         SELECT *, row_number() OVER (
           PARTITION BY deployer_id, kind, slug, host_id ORDER BY julianday(completed_at) DESC, seq DESC
         ) AS age FROM reports WHERE ${condition}
       ) WHERE age = 1 ORDER BY host_id, deployer_id, kind, slug`,
    )
    .all(...values)
  return rows.map(row => storedReportSchema.parse(row))
}
