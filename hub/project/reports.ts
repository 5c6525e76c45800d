import { randomUUID } from 'node:crypto'
import { z } from 'zod'
import { versionSchema } from '../names.ts'
import { statusSchema, utcTimeSchema } from '../report-fields.ts'
import type { Store } from '../store.ts'
import { partIdSchema, projectIdSchema } from './names.ts'

const MAX_PLUGINS = 1000

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

/** A report as clients send it: some leave the id, the times or the version of a plugin empty. */
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

/** The report with what its sender left empty: a new id, and the hub's time (milliseconds since 1970). */
export function completeReport(report: z.output<typeof projectReportSchema>, now: number): ProjectReport {
  const completed_at = report.completed_at || new Date(now).toISOString()
  return {
    ...report,
    deployment_id: report.deployment_id || randomUUID(),
    started_at: report.started_at || completed_at,
    completed_at,
  }
}

/** Keeps one row for each deployment id: a later report replaces the earlier one. */
export function recordProjectReport(store: Store, report: ProjectReport): void {
  const row = { ...report, plugins: JSON.stringify(report.plugins), reported_at: new Date().toISOString() }
  const places = COLUMNS.map(column => `:${column}`).join(', ')
  store.db.prepare(`INSERT OR REPLACE INTO project_reports (${COLUMNS.join(', ')}) VALUES (${places})`).run(row)
}

/** The latest deployments, newest first, by the hosts' own clocks, because a report can arrive late. */
export function listDeployments(store: Store, limit: number): StoredProjectReport[] {
  const rows = store.db
    .prepare(
      `SELECT ${COLUMNS.join(', ')} FROM project_reports ORDER BY julianday(completed_at) DESC, reported_at DESC LIMIT ?`,
    )
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
 * Removes the reports that this hub got before a time, but not the newest one of each project, nor its newest success.
 * Returns how many.
 */
export function pruneProjectReports(store: Store, before: Date): number {
  const newest = (condition: string) => `(
    SELECT deployment_id FROM project_reports AS newest
    WHERE newest.project_id = project_reports.project_id AND ${condition}
    ORDER BY julianday(newest.completed_at) DESC, newest.reported_at DESC LIMIT 1)`
  const { changes } = store.db
    .prepare(
      `DELETE FROM project_reports WHERE reported_at < ?
         AND deployment_id <> ${newest('TRUE')} AND deployment_id IS NOT ${newest("newest.status = 'success'")}`,
    )
    .run(before.toISOString())
  return Number(changes)
}

function newestOf({ db }: Store, projectId: string, condition: string): StoredProjectReport | undefined {
  const row = db
    .prepare(
      `SELECT ${COLUMNS.join(', ')} FROM project_reports WHERE project_id = ? AND ${condition}
       ORDER BY julianday(completed_at) DESC, reported_at DESC LIMIT 1`,
    )
    .get(projectId)
  return row === undefined ? undefined : storedSchema.parse(row)
}
