import { withDeadline } from './deadline.ts'
import { type Exchange, openExchange } from './exchange/exchange.ts'
import { type Headers, readRequestHeaders } from './exchange/headers.ts'
import { parseRequestUrl } from './policy/url-policy.ts'
import { followRedirects, type Hop } from './redirects.ts'
import { type RetryPolicy, withRetries } from './retries.ts'
import type { WireSettings } from './settings.ts'

export interface Call<T> {
  method: 'GET' | 'POST'
  url: string
  headers: Headers
  credentials: Headers | undefined
  body: string | undefined
  /** The URL that the operator gave, if `url` comes from a hub. */
  hub: string | undefined
  retry: RetryPolicy
  followRedirects: boolean
  /** Overall, including retries and waits. */
  timeoutMs: number
  /** The input that sets `timeoutMs`, if one does. */
  timeoutInput?: string
  /** Reads the body of each attempt's final answer, so that an attempt fails if the body breaks off. */
  receive: (exchange: Exchange) => Promise<T>
}

export interface AnswerHead {
  status: number
  headers: Headers
  /** The final URL, after redirects. Not for messages, because its query may contain signed tokens. */
  url: string
  /**
   * True if the answer is from a different origin than the operator's URL. No message quotes a foreign answer, because
   * messages are sent to the hub.
   */
  foreign?: boolean
  /** See `HttpRequest`. */
  server?: string
}

/**
 * Makes one call within its deadline, by the rules for headers, URLs, redirects and retries. Throws what those rules,
 * `withDeadline` and `receive` throw.
 */
export async function makeCall<T extends AnswerHead>(
  call: Call<T>,
  settings: WireSettings,
): Promise<T & { attempts: number }> {
  const start = readStart(call, settings)
  const limit = { origin: start.url.origin, ms: call.timeoutMs, input: call.timeoutInput }
  return await withDeadline(limit, settings, async deadline => {
    const attempt = () => attemptCall(call, start, { ...settings, signal: deadline.signal })
    return await withRetries(attempt, { ...settings, policy: call.retry, deadline })
  })
}

export function headOf({ status, headers, url, foreign, server }: Exchange): AnswerHead {
  return { status, headers, url: url.href, foreign, server }
}

function readStart(call: Call<unknown>, settings: WireSettings): Hop {
  const defaults = { 'user-agent': settings.userAgent, 'accept-encoding': 'identity' }
  const url = parseRequestUrl(call.url, settings)
  return {
    url,
    headers: readRequestHeaders({ ...defaults, ...call.headers }),
    credentials: readRequestHeaders(call.credentials),
    server: url.origin,
  }
}

async function attemptCall<T>(call: Call<T>, start: Hop, settings: WireSettings): Promise<T> {
  const { method, body } = call
  const hub = call.hub === undefined ? start.url : new URL(call.hub)
  const open = async ({ url, headers, credentials, server }: Hop) =>
    await openExchange({ method, url, headers: { ...headers, ...credentials }, body, hub, server }, settings)
  const exchange = call.followRedirects ? await followRedirects(start, open, settings) : await open(start)
  try {
    return await call.receive(exchange)
  } finally {
    exchange.close()
  }
}
