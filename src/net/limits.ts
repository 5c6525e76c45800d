/** A wire's `timeouts` option may replace these two. */
export const CONNECT_TIMEOUT_MS = 10_000
export const IDLE_TIMEOUT_MS = 30_000
export const MAX_REDIRECTS = 5
/** Attempts after the first one. */
export const MAX_RETRIES = 3
/** The n-th wait is random, at most base * 2^(n-1), and at most the cap, unless `Retry-After` asks for more. */
export const BACKOFF_BASE_MS = 500
export const BACKOFF_CAP_MS = 8_000
export const RETRY_AFTER_CAP_MS = 30_000
/** The maximum length of a quotation from an answer's body in a message. */
export const MAX_QUOTED_BODY_CHARS = 2048
/** A download buffers two blocks of this size. */
export const WRITE_BLOCK_BYTES = 1024 * 1024
