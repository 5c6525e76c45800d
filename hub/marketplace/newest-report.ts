/** What a report's host is known by: one plugin or service on one host of one owner. */
export const HOST = ['kind', 'slug', 'deployer_id', 'host_id'] as const

/**
 * SQL: a column of the newest report, or success, of the host in a row of that table. Newest means completed last by the
 * host's own clock, so that a report delivered late does not hide a newer one.
 */
export function newest(column: string, table: string, { isSuccess = false } = {}): string {
  const isSameHost = HOST.map(name => `newest.${name} = ${table}.${name}`).join(' AND ')
  // Left to itself, the planner walks through all failures since the last success.
  const [index, condition] = isSuccess ? ['INDEXED BY reports_of_success', "newest.status = 'success'"] : ['', 'TRUE']
  return `SELECT ${column} FROM reports AS newest ${index} WHERE ${isSameHost} AND ${condition}
            ORDER BY julianday(newest.completed_at) DESC, newest.seq DESC LIMIT 1`
}
