/**
 * SQL: the time at which a reported deployment was completed, by the host's own clock, so that a report delivered late
 * does not hide a newer one. No deployment counts as completed after this hub received its report: a clock that is
 * years ahead must not hide later reports.
 */
export const COMPLETED = 'min(julianday(completed_at), julianday(reported_at))'

/** SQL: the order of reports. The indexes are in the reverse order. */
export const NEWEST_FIRST = `${COMPLETED} DESC, reported_at DESC, rowid DESC`
