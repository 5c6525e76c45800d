/** The columns that identify the subject of a report: one plugin or service on one host of one owner. */
export const HOST = ['kind', 'slug', 'deployer_id', 'host_id'] as const

/**
 * SQL: the time at which a reported deployment was completed, by the host's own clock, because a report that arrives
 * late must not hide a newer one. The time is never later than the report's arrival at this hub: a clock that is years
 * ahead must not hide later reports.
 */
export const COMPLETED = 'min(julianday(completed_at), julianday(created_at))'

/**
 * SQL: a column of the newest report, or of the newest success, from the host in a row of `table`. The newest report is
 * about the deployment that was completed last.
 */
export function newest(column: string, table: string, { isSuccess = false } = {}): string {
  const isSameHost = HOST.map(name => `newest.${name} = ${table}.${name}`).join(' AND ')
  // Without the name of the index, the query planner would walk through all failures since the last success.
  const [index, condition] = isSuccess
    ? ['INDEXED BY successes_by_completion', "newest.status = 'success'"]
    : ['', 'TRUE']
  return `SELECT ${column} FROM reports AS newest ${index} WHERE ${isSameHost} AND ${condition}
            ORDER BY ${COMPLETED} DESC, newest.seq DESC LIMIT 1`
}
