import { ArtifactError } from '../core/errors.ts'
import { monotonicMs } from '../core/log.ts'
import { type Headers, TransientError } from './exchange.ts'
import {
  BACKOFF_BASE_MS,
  BACKOFF_CAP_MS,
  MAX_RETRIES,
  RETRY_AFTER_CAP_MS,
  type Sleep,
  UNCOUNTED_BYTES,
  type WireSettings,
} from './settings.ts'

/**
 * The failures after which a request is repeated. `transient`: failures of the connection, and answers 408, 429 and
 * 5xx. `connection-only`: failures before a byte of the request can have arrived, for requests that must not be made
 * twice.
 */
export type RetryPolicy = 'transient' | 'connection-only' | 'never'

interface RetryContext {
  policy: RetryPolicy
  /** The number of bytes that the next attempt would not fetch again. Default: always 0. */
  kept?: (() => number) | undefined
  deadline: Deadline
  sleep: Sleep
  random: () => number
  log: (line: string) => void
}

interface RetriableAnswer {
  status: number
  headers: Headers
}

type AttemptOutcome<T> = { answer: T } | { failure: TransientError }

/** The number of attempts after which a call failed, by the error that the call threw. */
const attemptsByError = new WeakMap<Error, number>()

/** Returns the number of attempts after which a call failed with this error; 1 if that is not known. */
export function attemptsBefore(error: unknown): number {
  return (error instanceof Error ? attemptsByError.get(error) : undefined) ?? 1
}

/**
 * Makes up to 1 + MAX_RETRIES attempts, not counting those after which `kept` has grown by UNCOUNTED_BYTES beyond its
 * maximum so far. Returns the answer of the last attempt with the number of all attempts. If the last attempt fails,
 * throws its failure, for which `attemptsBefore` returns that number. Between attempts, waits a time with full jitter
 * that grows exponentially with the counted ones, or longer if `Retry-After` asks for more; both times are capped. Does
 * not start a wait that would reach the deadline. Throws any error but a TransientError at once. Once the deadline's
 * signal is aborted, attempts nothing more and throws the signal's reason.
 */
export async function withRetries<T extends RetriableAnswer>(
  attempt: () => Promise<T>,
  { policy, kept = () => 0, deadline, sleep, random, log }: RetryContext,
): Promise<T & { attempts: number }> {
  const { signal } = deadline
  let [attempts, uncounted, mostKept] = [0, 0, 0]
  try {
    for (;;) {
      attempts += 1
      const outcome = await outcomeOf(attempt)
      signal.throwIfAborted()
      if (kept() - mostKept >= UNCOUNTED_BYTES) uncounted += 1
      mostKept = Math.max(mostKept, kept())
      const counted = attempts - uncounted
      const waitMs = Math.max(random() * maxBackoffMs(counted), requestedWaitMs(outcome))
      const again = isWorthRetrying(outcome, policy) && counted <= MAX_RETRIES && waitMs < deadline.remainingMs()
      if (!again) return { ...answerOf(outcome), attempts }
      log(
        `Attempt ${attempts} of ${1 + MAX_RETRIES + uncounted}: ${describeOutcome(outcome)} Trying again in ${(waitMs / 1000).toFixed(1)} s.`,
      )
      await sleep(waitMs, signal)
      signal.throwIfAborted()
    }
  } catch (error) {
    const failure = signal.aborted ? signal.reason : error
    if (failure instanceof Error) attemptsByError.set(failure, attempts)
    throw failure
  }
}

/**
 * Returns the milliseconds that a `Retry-After` header (seconds or an HTTP date) asks for, at most RETRY_AFTER_CAP_MS;
 * 0 for anything else. A date counts from the answer's own `Date`, so that this host's clock does not matter. Without a
 * usable `Date`, the result for a date is 0.
 */
export function parseRetryAfter({ 'retry-after': header = '', date = '' }: Headers): number {
  const text = header.trim()
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : parseHttpDate(text) - parseHttpDate(date.trim())
  return Number.isNaN(ms) ? 0 : Math.min(Math.max(ms, 0), RETRY_AFTER_CAP_MS)
}

function parseHttpDate(text: string): number {
  return HTTP_DATE.test(text) ? Date.parse(text) : Number.NaN
}

const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/

async function outcomeOf<T>(attempt: () => Promise<T>): Promise<AttemptOutcome<T>> {
  try {
    return { answer: await attempt() }
  } catch (error) {
    if (error instanceof TransientError) return { failure: error }
    throw error
  }
}

function isWorthRetrying(outcome: AttemptOutcome<RetriableAnswer>, policy: RetryPolicy): boolean {
  switch (policy) {
    case 'never':
      return false
    case 'connection-only':
      return 'failure' in outcome && !outcome.failure.sent
    case 'transient':
      return 'failure' in outcome || isTransientStatus(outcome.answer.status)
  }
}

/** True for 408, 429 and 5xx: the same request may get another answer later. */
export function isTransientStatus(status: number): boolean {
  return status === 408 || status === 429 || status >= 500
}

function maxBackoffMs(attempts: number): number {
  return Math.min(BACKOFF_CAP_MS, BACKOFF_BASE_MS * 2 ** (attempts - 1))
}

function requestedWaitMs(outcome: AttemptOutcome<RetriableAnswer>): number {
  return 'answer' in outcome ? parseRetryAfter(outcome.answer.headers) : 0
}

function answerOf<T>(outcome: AttemptOutcome<T>): T {
  if ('failure' in outcome) throw outcome.failure
  return outcome.answer
}

function describeOutcome(outcome: AttemptOutcome<RetriableAnswer>): string {
  return 'failure' in outcome ? outcome.failure.message : `the answer was HTTP ${outcome.answer.status}.`
}

/** The time that the exchange with an origin may take, including retries and waits. */
interface TimeLimit {
  origin: string
  ms: number
  /** The input that sets the limit, if one does. */
  input?: string | undefined
}

interface Deadline {
  /** Aborted when the time is up or the caller cancels. */
  signal: AbortSignal
  remainingMs: () => number
}

/**
 * Runs an operation within its time limit. Rejects with ArtifactError `timeout` if the operation takes longer, and with
 * the reason of the settings' signal if that signal is aborted first. The operation must stop when the deadline's
 * signal is aborted.
 */
export async function withDeadline<T>(
  limit: TimeLimit,
  settings: Pick<WireSettings, 'signal' | 'startTimer'>,
  operation: (deadline: Deadline) => Promise<T>,
): Promise<T> {
  settings.signal.throwIfAborted()
  const expiry = new AbortController()
  const stopTimer = settings.startTimer(limit.ms, () => expiry.abort(overdue(limit)))
  const endsAt = monotonicMs() + limit.ms
  const signal = AbortSignal.any([settings.signal, expiry.signal])
  try {
    return await operation({ signal, remainingMs: () => endsAt - monotonicMs() })
  } catch (error) {
    throw signal.aborted ? signal.reason : error
  } finally {
    stopTimer()
  }
}

function overdue({ origin, ms, input }: TimeLimit): ArtifactError {
  const raise = input === undefined ? '' : `, or raise ${input}`
  return new ArtifactError(
    'timeout',
    `The exchange with ${origin} did not finish within ${Number((ms / 1000).toFixed(1))} s in all: check the server and the network${raise}.`,
  )
}
