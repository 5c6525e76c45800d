import { recordReport, type StoredReport } from '../../hub/marketplace/reports.ts'
import type { Store } from '../../hub/store.ts'

/** A report with the fields that a test sets. `hoursAgo` counts back from NOW. */
export interface ReportGiven extends Partial<Parameters<typeof recordReport>[2]> {
  readonly hoursAgo?: number
  readonly owner?: string
}

/** The hub's time in these tests. */
export const NOW = Date.UTC(2026, 0, 31, 12)
const HOUR_MS = 3_600_000

export function report(store: Store, { hoursAgo = 1, owner = 'alice', ...given }: ReportGiven): StoredReport {
  const at = new Date(NOW - hoursAgo * HOUR_MS).toISOString()
  return recordReport(store, owner, {
    kind: 'plugin',
    slug: 'hello',
    version: '1.0.0',
    status: 'success',
    started_at: at,
    completed_at: at,
    host_id: 'host',
    repo: null,
    error_message: null,
    ...given,
  })
}

/** SQLite's plan for each statement that the work prepares, with a line for each step. */
export function plansOf(store: Store, work: () => unknown): string[] {
  const plans: string[] = []
  const prepare = store.db.prepare.bind(store.db)
  const noting = (sql: string) => {
    plans.push(
      ...prepare(`EXPLAIN QUERY PLAN ${sql}`)
        .all()
        .map(row => String(row['detail'])),
    )
    return prepare(sql)
  }
  Object.assign(store.db, { prepare: noting })
  work()
  Object.assign(store.db, { prepare })
  return plans
}
