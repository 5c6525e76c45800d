import { ArtifactError } from '../core/errors.ts'
import { MAX_JSON_BODY_BYTES } from '../core/identifiers.ts'
import { cleanForeignText } from '../core/text.ts'
import { type AnswerHead, headOf, makeCall } from './call.ts'
import { type Exchange, type Headers, unusableAnswer } from './exchange.ts'
import type { RetryPolicy } from './retries.ts'
import { MAX_QUOTED_BODY_CHARS, type WireSettings } from './settings.ts'

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
  /** Accepts any body of a 2xx answer, because the caller needs only the status and a quotation. */
  anyBody?: boolean
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
    receive: (exchange: Exchange) => receiveJson(exchange, request),
  }
  const signals = [settings.signal, ...(request.signal === undefined ? [] : [request.signal])]
  return await makeCall(call, { ...settings, signal: AbortSignal.any(signals) })
}

async function receiveJson(
  exchange: Exchange,
  { maxBytes = MAX_JSON_BODY_BYTES, anyBody = false }: JsonRequest,
): Promise<Omit<JsonAnswer, 'attempts'>> {
  const isJudged = exchange.status >= 200 && exchange.status < 300 && !anyBody
  if (isJudged && isEncoded(exchange)) throw unusableAnswer(exchange, 'plain JSON', encodedBody(exchange))
  const { cut, ...answer } = await readAnswerText(exchange, maxBytes)
  if (isJudged && cut) throw unusableAnswer(exchange, `at most ${maxBytes} bytes of JSON`, 'a longer body')
  return { ...headOf(exchange), ...answer }
}

const MAX_CONTAINERS = 1_000_000
const [OPENS_LIST, OPENS_OBJECT] = [0x5b, 0x7b]

/** The body of an answer, as text and as JSON. */
interface AnswerText {
  /** Parsed; undefined if the body is empty, encoded, not JSON, too long, or contains over a million `[` and `{`. */
  body: unknown
  /** The text of the bytes that were read; not to be printed. */
  decoded: string
  /** The beginning of the body, cleaned, for messages. */
  text: string
  /** True if the body was too long; its end is missing here. */
  cut: boolean
}

/** Keeps at most `maxBytes` of an answer's body, and nothing of an encoded body. */
export async function readAnswerText(exchange: Exchange, maxBytes = MAX_JSON_BODY_BYTES): Promise<AnswerText> {
  if (isEncoded(exchange)) {
    exchange.close()
    return { body: undefined, decoded: '', text: '', cut: false }
  }
  const { bytes, cut } = await readCapped(exchange.body, maxBytes)
  const decoded = new TextDecoder().decode(bytes)
  const text = cleanForeignText(decoded, MAX_QUOTED_BODY_CHARS)
  if (isFromTlsPort(exchange, decoded))
    throw new ArtifactError(
      'bad_response',
      `${exchange.server} expects https on this port: the URL must begin with https instead of http.`,
    )
  return { body: cut || isCostly(bytes) ? undefined : parseJson(decoded), decoded, text, cut }
}

/** What nginx, Go, Apache and Tomcat answer to plain http on a port for https. */
const EXPECTS_TLS =
  /plain HTTP request was sent to HTTPS|HTTP request to an HTTPS server|plain HTTP to an SSL|host and port requires TLS/

function isFromTlsPort({ status, url }: Exchange, text: string): boolean {
  return status === 400 && url.protocol === 'http:' && EXPECTS_TLS.test(text)
}

/** Some storage keeps `aws-chunked` from an upload, although it sends the plain bytes. */
const PLAIN_ENCODINGS: ReadonlySet<string> = new Set(['', 'identity', 'aws-chunked'])

/** True if the body has a Content-Encoding that changes its bytes, although each request accepts only `identity`. */
export function isEncoded({ headers }: Exchange): boolean {
  return encodingsOf(headers).some(encoding => !PLAIN_ENCODINGS.has(encoding))
}

/** Describes the body of an encoded answer; quotes nothing of a foreign answer. */
export function encodedBody({ headers, foreign }: Exchange): string {
  return `an encoded body (Content-Encoding${foreign ? '' : `: ${cleanForeignText(encodingsOf(headers).join(', '), 60)}`})`
}

function encodingsOf(headers: Headers): string[] {
  return (headers['content-encoding'] ?? '').split(',').map(encoding => encoding.trim().toLowerCase())
}

async function readCapped(body: AsyncIterable<Buffer>, maxBytes: number): Promise<{ bytes: Buffer; cut: boolean }> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    size += chunk.length
    if (size > maxBytes) break
  }
  return { bytes: Buffer.concat(chunks).subarray(0, maxBytes), cut: size > maxBytes }
}

/** True if parsing would cost too much: millions of empty or nested lists would need a gigabyte of memory. */
function isCostly(bytes: Buffer): boolean {
  let room = MAX_CONTAINERS
  for (const byte of bytes) if ((byte === OPENS_LIST || byte === OPENS_OBJECT) && --room < 0) return true
  return false
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
