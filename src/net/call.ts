import { withDeadline } from './deadline.ts'
import { type Exchange, openExchange } from './exchange.ts'
import { type Headers, readRequestHeaders } from './headers.ts'
import { followRedirects, type Hop } from './redirects.ts'
import { type RetryPolicy, withRetries } from './retries.ts'
import type { WireSettings } from './settings.ts'
import { parseRequestUrl } from './url-policy.ts'

export interface Call {
  method: 'GET' | 'POST'
  url: string
  headers: Headers
  credentials: Headers | undefined
  body: string | undefined
  retry: RetryPolicy
  followRedirects: boolean
  /** Overall, retries and waits included. */
  timeoutMs: number
}

/** What every answer tells. */
export interface AnswerHead {
  status: number
  headers: Headers
  /** The final URL, after redirects. Its query may hold signed tokens: not for messages. */
  url: string
}

/**
 * Makes one call within its deadline: policy, redirects, retries. `receive` gets each attempt's final answer and reads its body,
 * so that a body that breaks off is an attempt that failed. Throws what those rules throw.
 */
export async function makeCall<T extends AnswerHead>(
  call: Call,
  settings: WireSettings,
  receive: (exchange: Exchange, head: AnswerHead) => Promise<T>,
): Promise<T & { attempts: number }> {
  const start = readStart(call, settings)
  return withDeadline(call.timeoutMs, start.url.origin, settings.signal, deadline => {
    const open = (hop: Hop) => openExchange(requestFor(hop, call), settings, deadline.signal)
    const attempt = async (): Promise<T> => {
      const exchange = call.followRedirects
        ? await followRedirects(start, open, settings, settings.log)
        : await open(start)
      try {
        return await receive(exchange, { status: exchange.status, headers: exchange.headers, url: exchange.url.href })
      } finally {
        exchange.close()
      }
    }
    return withRetries(attempt, { ...settings, policy: call.retry, deadline })
  })
}

function readStart(call: Call, settings: WireSettings): Hop {
  const defaults = { 'user-agent': settings.userAgent, 'accept-encoding': 'identity' }
  return {
    url: parseRequestUrl(call.url, settings),
    headers: readRequestHeaders({ ...defaults, ...call.headers }),
    credentials: readRequestHeaders(call.credentials),
  }
}

function requestFor(hop: Hop, call: Call) {
  return { method: call.method, url: hop.url, headers: { ...hop.headers, ...hop.credentials }, body: call.body }
}
