/** Ends a test that hangs. On a busy machine, too, no test takes nearly as long. */
export const HANG_LIMIT_MS = 900_000
