/**
 * SQL: when a reported deployment was completed, by the host's own clock, so that a report delivered late does not hide
 * a newer one. Nothing is completed after this hub got its report: a clock that is years ahead must not hide what follows.
 */
export const COMPLETED = 'min(julianday(completed_at), julianday(reported_at))'

/** SQL: the order of reports. The indexes have it reversed. */
export const NEWEST_FIRST = `${COMPLETED} DESC, reported_at DESC, rowid DESC`
