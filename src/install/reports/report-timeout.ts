const REPORT_TIMEOUT_MS = 10_000
/** After a cancel the runner kills within 10 s of its first signal; what is not told by then waits in the outbox. */
const CANCELLED_REPORT_TIMEOUT_MS = 2000

/** How long telling the hub may take in all, retries included: little once the run is cancelled. */
export function reportTimeout(signal?: AbortSignal): () => number {
  return () => (signal?.aborted ? CANCELLED_REPORT_TIMEOUT_MS : REPORT_TIMEOUT_MS)
}
