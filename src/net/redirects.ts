import { ArtifactError, ConfigError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import type { Exchange } from './exchange/exchange.ts'
import type { Headers } from './exchange/headers.ts'
import { MAX_REDIRECTS } from './limits.ts'
import { refuseInsecureHop, refuseInsecureUrl, type UrlPolicy } from './policy/url-policy.ts'
import type { WireSettings } from './settings.ts'

/** The next URL of a request, and the headers for it. */
export interface Hop {
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
 * redirects. Also throws what `open` throws.
 */
export async function followRedirects(
  start: Hop,
  open: (hop: Hop) => Promise<Exchange>,
  settings: Pick<WireSettings, 'allowHttp' | 'log'>,
): Promise<Exchange> {
  const visited = [start.url.href]
  let hop = start
  for (;;) {
    const exchange = await open(hop)
    if (!REDIRECT_STATUSES.has(exchange.status)) return exchange
    exchange.close()
    const target = readTarget(exchange)
    verifyTarget(exchange, target, settings)
    refuseEndlessChain(start.server, visited, target)
    visited.push(target.href)
    settings.log(`${exchange.url.origin} redirects (HTTP ${exchange.status}) to ${target.origin}.`)
    hop = hopTo(target, hop, serverName(target, exchange))
  }
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
  const location = headers['location'] ?? ''
  if (location === '' || !URL.canParse(location, url.href)) {
    const found =
      location === '' || foreign
        ? 'no usable Location header'
        : `the Location "${cleanForeignText(location.replace(/[?#].*$/s, ''), 100)}"`
    throw badRedirect(server, `expected a redirect (HTTP ${status}) with a usable target, found ${found}`)
  }
  return new URL(location, url)
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
