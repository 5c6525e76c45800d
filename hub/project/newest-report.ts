/**
 * SQL: the time at which a reported deployment was completed, by the host's own clock, because a report that arrives
 * late must not hide a newer one. The time is never later than the report's arrival at this hub: a clock that is years
 * ahead must not hide later reports.
 */
export const COMPLETED = 'min(julianday(completed_at), julianday(reported_at))'

/** SQL: the order of reports. The indexes are in the reverse order. */
export const NEWEST_FIRST = `${COMPLETED} DESC, reported_at DESC, rowid DESC`
