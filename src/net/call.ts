import { isUtf8 } from 'node:buffer'
import { ArtifactError, ConfigError } from '../core/errors.ts'
import { cleanForeignText } from '../core/text.ts'
import { type Exchange, type Headers, openExchange, readRequestHeaders } from './exchange.ts'
import { parseRequestUrl, refuseInsecureHop, refuseInsecureUrl, type UrlPolicy } from './policy.ts'
import { type RetryPolicy, withDeadline, withRetries } from './retries.ts'
import { MAX_REDIRECTS, type WireSettings } from './settings.ts'

interface Call<T> {
  method: 'GET' | 'POST'
  url: string
  headers: Headers
  credentials: Headers | undefined
  body: string | undefined
  /** The URL that the operator gave, if `url` comes from a hub. */
  hub: string | undefined
  retry: RetryPolicy
  followRedirects: boolean
  /** Names of headers that an earlier answer may have sent instead of the last one; see `withOriginHeaders`. */
  originHeaders?: readonly string[]
  /** Overall, including retries and waits. */
  timeoutMs: number
  /** The input that sets `timeoutMs`, if one does. */
  timeoutInput?: string
  /** More headers for the next attempt, for every hop. */
  attemptHeaders?: () => Headers
  /** See `RetryContext`. */
  kept?: () => number
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
 * Makes one call within its deadline, by the rules for headers, URLs, redirects and retries. Each attempt begins at the
 * call's own URL.
 */
export async function makeCall<T extends AnswerHead>(
  call: Call<T>,
  settings: WireSettings,
): Promise<T & { attempts: number }> {
  const start = readFirstHop(call, settings)
  const limit = { origin: start.url.origin, ms: call.timeoutMs, input: call.timeoutInput }
  return await withDeadline(limit, settings, async deadline => {
    const attempt = () => {
      const hop = { ...start, headers: { ...start.headers, ...call.attemptHeaders?.() } }
      return attemptCall(call, hop, { ...settings, signal: deadline.signal })
    }
    return await withRetries(attempt, { ...settings, policy: call.retry, kept: call.kept, deadline })
  })
}

export function headOf({ status, headers, url, foreign, server }: Exchange): AnswerHead {
  return { status, headers, url: url.href, foreign, server }
}

function readFirstHop(call: Call<unknown>, settings: WireSettings): Hop {
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
  const exchange = call.followRedirects
    ? await followRedirects(start, open, { ...settings, ...call })
    : await open(start)
  try {
    return await call.receive(exchange)
  } finally {
    exchange.close()
  }
}

/** The next URL of a request, and the headers for it. */
interface Hop {
  url: URL
  headers: Headers
  /** Headers for the first URL's own origin. */
  credentials: Headers
  /** See `HttpRequest`. */
  server: string
}

/**
 * Opens the hop and follows its redirects, at most MAX_REDIRECTS. Permanently drops the credentials, `authorization`
 * and `cookie` at the first redirect to another scheme, host or port. Throws ConfigError `insecure_url` for a hop that
 * the policy refuses, and ArtifactError `bad_response` for a redirect without a usable target, a loop or too many
 * redirects.
 */
async function followRedirects(
  start: Hop,
  open: (hop: Hop) => Promise<Exchange>,
  settings: Pick<WireSettings, 'allowHttp' | 'log'> & Pick<Call<unknown>, 'originHeaders'>,
): Promise<Exchange> {
  const visited = [start.url.href]
  const answers: Exchange[] = []
  let hop = start
  for (;;) {
    const exchange = await open(hop)
    answers.push(exchange)
    if (!REDIRECT_STATUSES.has(exchange.status)) return withOriginHeaders(answers, settings.originHeaders ?? [])
    exchange.close()
    const target = readTarget(exchange)
    verifyTarget(exchange, target, settings)
    refuseEndlessChain(start.server, visited, target)
    visited.push(target.href)
    settings.log(`${exchange.url.origin} redirects (HTTP ${exchange.status}) to ${target.origin}.`)
    hop = hopTo(target, hop, serverName(target, exchange))
  }
}

/**
 * Returns the last of the answers with the header that the first answer's origin sent last, for each of these names. If
 * that origin sent none, the last answer that has one decides. A hub that redirects to storage may sign its redirect.
 */
function withOriginHeaders(answers: readonly Exchange[], names: readonly string[]): Exchange {
  const [first, last] = [answers[0] as Exchange, answers.at(-1) as Exchange]
  const headers = names.flatMap(name => {
    const senders = answers.filter(answer => answer.headers[name] !== undefined)
    const sender = senders.findLast(({ url }) => url.origin === first.url.origin) ?? senders.at(-1)
    return sender === undefined ? [] : [[name, sender.headers[name]]]
  })
  return { ...last, headers: { ...last.headers, ...Object.fromEntries(headers) } }
}

const REDIRECT_STATUSES = new Set([301, 302, 303, 307, 308])

/** Refuses a target as the URL policy does. The message does not name a target that a foreign answer gave. */
function verifyTarget({ url, server, foreign }: Exchange, target: URL, settings: UrlPolicy): void {
  try {
    refuseInsecureHop(url, target)
    refuseInsecureUrl(target, settings)
  } catch (error) {
    if (!foreign) throw error
    const message = `${server} redirects to a URL that is not allowed, such as one with plain http: the redirect was not followed. Report this to the hub's operator.`
    throw new ConfigError('insecure_url', message)
  }
}

function readTarget({ url, server, status, headers, foreign }: Exchange): URL {
  const location = decodedLocation(headers['location'] ?? '')
  if (location === '' || !URL.canParse(location, url.href)) {
    const found =
      location === '' || foreign
        ? 'no usable Location header'
        : `the Location "${cleanForeignText(location.replace(/[?#].*$/s, ''), 100)}"`
    throw badRedirect(server, `expected a redirect (HTTP ${status}) with a usable target, found ${found}`)
  }
  return new URL(location, url)
}

/** Node.js reads headers as Latin-1, but some servers send UTF-8. */
function decodedLocation(location: string): string {
  const bytes = Buffer.from(location, 'latin1')
  return isUtf8(bytes) ? bytes.toString() : location
}

/** The message names the first server, because a foreign answer may have given the others. */
function refuseEndlessChain(start: string, visited: readonly string[], next: URL): void {
  if (visited.includes(next.href)) throw badRedirect(start, 'its redirects form a loop')
  if (visited.length > MAX_REDIRECTS)
    throw badRedirect(start, `expected at most ${MAX_REDIRECTS} redirects in a row, found more`)
}

function hopTo(url: URL, from: Hop, server: string): Hop {
  if (url.origin === from.url.origin) return { ...from, url, server }
  return { url, headers: withoutIdentity(from), credentials: {}, server }
}

/** Messages are sent to the hub, so they name no server that only a foreign answer gave. */
function serverName(target: URL, { url, foreign, server }: Exchange): string {
  if (!foreign) return target.origin
  const isNamed = server === url.origin
  return isNamed && target.origin !== url.origin ? `${server}'s redirect target` : server
}

function withoutIdentity(hop: Hop): Headers {
  const dropped = new Set(['authorization', 'cookie', ...Object.keys(hop.credentials)])
  return Object.fromEntries(Object.entries(hop.headers).filter(([name]) => !dropped.has(name)))
}

function badRedirect(server: string, finding: string): ArtifactError {
  return new ArtifactError(
    'bad_response',
    `${server}: ${finding}. Check the URL, or report this to the hub's operator.`,
  )
}
