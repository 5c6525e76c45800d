import { randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { z } from 'zod'
import { partIdSchema, projectIdSchema, statusSchema, utcTimeSchema, versionSchema } from '../names.ts'
import { NEWEST_PROJECT_REPORT_FIRST } from '../schema.ts'
import type { Store } from '../store.ts'

const MAX_PLUGINS = 1000
/** A batch takes tens of milliseconds, and a hub that waits to write tries again within the pause. */
const PRUNED_AT_ONCE = 5_000
const PAUSE_MS = 100

const EMPTY = z.literal('')

const pluginsSchema = z
  .array(
    z.object({ id: partIdSchema, version: z.union([EMPTY, versionSchema], { error: 'must be a version, or empty' }) }),
  )
  .max(MAX_PLUGINS, { error: `must have at most ${MAX_PLUGINS} entries` })

const deploymentIdSchema = z.guid({ error: 'must be a UUID' }).toLowerCase()

const completeReportSchema = z.object({
  project_id: projectIdSchema,
  deployment_id: deploymentIdSchema,
  version: versionSchema,
  status: statusSchema,
  started_at: utcTimeSchema,
  completed_at: utcTimeSchema,
  plugins: pluginsSchema,
})
export type ProjectReport = z.output<typeof completeReportSchema>

/** A report as clients send it: some leave the deployment id, the times or a plugin's version empty. */
export const projectReportSchema = completeReportSchema.extend({
  deployment_id: z.union([EMPTY, deploymentIdSchema], { error: 'must be a UUID, or empty' }),
  started_at: z.union([EMPTY, utcTimeSchema], { error: 'must be an ISO 8601 time in UTC, or empty' }),
  completed_at: z.union([EMPTY, utcTimeSchema], { error: 'must be an ISO 8601 time in UTC, or empty' }),
})

const storedSchema = completeReportSchema.extend({
  plugins: z
    .string()
    .transform(text => JSON.parse(text))
    .pipe(pluginsSchema),
  reported_at: z.string(),
})
export type StoredProjectReport = z.output<typeof storedSchema>

const COLUMNS = storedSchema.keyof().options

/**
 * Replaces an empty id with a new one, an empty `completed_at` with `now` (milliseconds since 1970), and an empty
 * `started_at` with `completed_at`.
 */
export function completeReport(report: z.output<typeof projectReportSchema>, now: number): ProjectReport {
  const completed_at = report.completed_at || new Date(now).toISOString()
  return {
    ...report,
    deployment_id: report.deployment_id || randomUUID(),
    started_at: report.started_at || completed_at,
    completed_at,
  }
}

/**
 * Records a report. Keeps one row for each deployment id of a project: a later report replaces the earlier one. `now`
 * is in milliseconds since 1970.
 */
export function recordProjectReport(store: Store, report: ProjectReport, now: number): void {
  const row = { ...report, plugins: JSON.stringify(report.plugins), reported_at: new Date(now).toISOString() }
  const places = COLUMNS.map(column => `:${column}`).join(', ')
  store.db.prepare(`INSERT OR REPLACE INTO project_reports (${COLUMNS.join(', ')}) VALUES (${places})`).run(row)
}

/** The latest deployments, newest first. */
export function listDeployments(store: Store, limit: number): StoredProjectReport[] {
  const rows = store.db
    .prepare(`SELECT ${COLUMNS.join(', ')} FROM project_reports ORDER BY ${NEWEST_PROJECT_REPORT_FIRST} LIMIT ?`)
    .all(limit)
  return rows.map(row => storedSchema.parse(row))
}

/** The newest report of a project, and its newest success. */
export interface ProjectState {
  readonly newest: StoredProjectReport | undefined
  readonly success: StoredProjectReport | undefined
}

export function readProjectState(store: Store, projectId: string): ProjectState {
  return { newest: newestOf(store, projectId, 'TRUE'), success: newestOf(store, projectId, "status = 'success'") }
}

/**
 * Removes the reports that this hub received before a given time. Keeps the newest report and the newest success of
 * each project. Works in batches; between two batches, a running hub may write. Resolves to the number of removed
 * reports.
 */
export async function pruneProjectReports(store: Store, before: Date): Promise<number> {
  const last = Number(store.db.prepare('SELECT max(rowid) AS last FROM project_reports').get()?.['last'] ?? 0)
  let removed = 0
  for (let from = 0; from < last; from += PRUNED_AT_ONCE) {
    if (from > 0) await setTimeout(PAUSE_MS)
    removed += pruneBatch(store, before, from)
  }
  return removed
}

function pruneBatch({ db }: Store, before: Date, from: number): number {
  const newest = (condition: string) => `(
    SELECT deployment_id FROM project_reports AS newest
    WHERE newest.project_id = project_reports.project_id AND ${condition} ORDER BY ${NEWEST_PROJECT_REPORT_FIRST} LIMIT 1)`
  const { changes } = db
    .prepare(
      `DELETE FROM project_reports WHERE rowid > ? AND rowid <= ? AND reported_at < ?
         AND deployment_id <> ${newest('TRUE')} AND deployment_id IS NOT ${newest("newest.status = 'success'")}`,
    )
    .run(from, from + PRUNED_AT_ONCE, before.toISOString())
  return Number(changes)
}

function newestOf({ db }: Store, projectId: string, condition: string): StoredProjectReport | undefined {
  const row = db
    .prepare(
      `SELECT ${COLUMNS.join(', ')} FROM project_reports WHERE project_id = ? AND ${condition}
       ORDER BY ${NEWEST_PROJECT_REPORT_FIRST} LIMIT 1`,
    )
    .get(projectId)
  return row === undefined ? undefined : storedSchema.parse(row)
}
