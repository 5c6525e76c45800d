/** The time after which a test counts as hanging. Even on a busy machine, no test takes nearly that long. */
export const HANG_LIMIT_MS = 900_000
