import { MAX_JSON_BODY_BYTES } from '../core/limits.ts'
import { isEncoded, readAnswerText } from './answer-text.ts'
import { type AnswerHead, headOf, makeCall } from './call.ts'
import type { Exchange } from './exchange/exchange.ts'
import type { Headers } from './exchange/headers.ts'
import { unusableAnswer } from './exchange/unusable-answer.ts'
import type { RetryPolicy } from './retries.ts'
import type { WireSettings } from './settings.ts'

export interface JsonRequest {
  method: 'GET' | 'POST'
  url: string
  /** Sent only to the URL's own origin: dropped as soon as a redirect leaves its scheme, host or port. */
  credentials?: Headers
  headers?: Headers
  /** Sent as JSON. */
  body?: unknown
  retry: RetryPolicy
  /** Overall, including retries and waits. */
  timeoutMs: number
  /** The limit for the answer's body; default MAX_JSON_BODY_BYTES. */
  maxBytes?: number
  /** Cancels only this request, which then rejects with the signal's reason. */
  signal?: AbortSignal | undefined
  /** Default true for GET. A POST is never redirected: the 3xx is its answer. */
  followRedirects?: boolean
}

export interface JsonAnswer extends AnswerHead {
  /** Parsed; undefined if that is not possible (see `AnswerText`). */
  body: unknown
  /** The decoded body; not to be printed. */
  decoded: string
  /** The body's first 2,048 characters, cleaned, for messages. */
  text: string
  attempts: number
}

/**
 * Returns the answer to a request, whatever its status. Throws ConfigError `insecure_url` or `invalid_input`, and
 * ArtifactError `network`, `timeout` or `bad_response`. The error is `bad_response` for bad redirects, an answer that
 * is not HTTP, and a 2xx body that is encoded or too long. Throws the reason of either signal once that signal is
 * aborted.
 */
export async function requestJson(request: JsonRequest, settings: WireSettings): Promise<JsonAnswer> {
  const hasBody = request.body !== undefined
  const call = {
    method: request.method,
    url: request.url,
    headers: {
      accept: 'application/json',
      ...(hasBody ? { 'content-type': 'application/json' } : {}),
      ...request.headers,
    },
    credentials: request.credentials,
    body: hasBody ? JSON.stringify(request.body) : undefined,
    hub: undefined,
    retry: request.retry,
    followRedirects: request.method === 'GET' && request.followRedirects !== false,
    timeoutMs: request.timeoutMs,
    receive: (exchange: Exchange) => receiveJson(exchange, request.maxBytes ?? MAX_JSON_BODY_BYTES),
  }
  const signals = [settings.signal, ...(request.signal === undefined ? [] : [request.signal])]
  return await makeCall(call, { ...settings, signal: AbortSignal.any(signals) })
}

async function receiveJson(exchange: Exchange, maxBytes: number): Promise<Omit<JsonAnswer, 'attempts'>> {
  const succeeded = exchange.status >= 200 && exchange.status < 300
  if (succeeded && isEncoded(exchange))
    throw unusableAnswer(exchange, 'plain JSON', 'an encoded body (Content-Encoding)')
  const { cut, ...answer } = await readAnswerText(exchange, maxBytes)
  if (succeeded && cut) throw unusableAnswer(exchange, `at most ${maxBytes} bytes of JSON`, 'a longer body')
  return { ...headOf(exchange), ...answer }
}
