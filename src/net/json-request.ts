import { ArtifactError } from '../core/errors.ts'
import { MAX_JSON_BODY_BYTES } from '../core/limits.ts'
import { isEncoded, readAnswerText } from './answer-text.ts'
import { type AnswerHead, makeCall } from './call.ts'
import type { Exchange } from './exchange.ts'
import type { Headers } from './headers.ts'
import type { RetryPolicy } from './retries.ts'
import type { WireSettings } from './settings.ts'

export interface JsonRequest {
  method: 'GET' | 'POST'
  url: string
  /** Sent to the URL's own origin only: dropped as soon as a redirect leaves its scheme, host or port. */
  credentials?: Headers
  headers?: Headers
  /** Sent as JSON. */
  body?: unknown
  retry: RetryPolicy
  /** Overall, retries and waits included. */
  timeoutMs: number
  /** Default true for GET. A POST is never redirected: the 3xx is its answer. */
  followRedirects?: boolean
}

export interface JsonAnswer extends AnswerHead {
  /** Parsed; undefined when it is empty or not JSON. */
  body: unknown
  /** The body as it came; not to be printed. */
  decoded: string
  /** The body's first 2,048 characters, cleaned, for messages. */
  text: string
  attempts: number
}

/**
 * The answer to a request, whatever its status. Throws ConfigError `insecure_url` or `invalid_input`, and ArtifactError `network`,
 * `timeout`, or `bad_response` for trouble with redirects and for a 2xx body that is encoded or longer than MAX_JSON_BODY_BYTES.
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
    retry: request.retry,
    followRedirects: request.method === 'GET' && request.followRedirects !== false,
    timeoutMs: request.timeoutMs,
  }
  return makeCall(call, settings, receiveJson)
}

async function receiveJson(exchange: Exchange, head: AnswerHead): Promise<Omit<JsonAnswer, 'attempts'>> {
  const succeeded = head.status >= 200 && head.status < 300
  if (succeeded && isEncoded(exchange)) throw unusable(exchange, 'plain JSON', 'an encoded body (Content-Encoding)')
  const { cut, ...answer } = await readAnswerText(exchange)
  if (succeeded && cut) throw unusable(exchange, `at most ${MAX_JSON_BODY_BYTES} bytes of JSON`, 'more')
  return { ...head, ...answer }
}

function unusable(exchange: Exchange, expected: string, found: string): ArtifactError {
  return new ArtifactError(
    'bad_response',
    `${exchange.url.origin} should answer with ${expected}, found ${found}: check the URL.`,
  )
}
