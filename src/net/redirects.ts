import { ArtifactError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import type { Exchange } from './exchange.ts'
import type { Headers } from './headers.ts'
import { MAX_REDIRECTS } from './limits.ts'
import { refuseInsecureHop, refuseInsecureUrl, type UrlPolicy } from './url-policy.ts'

/** Where to send a request next, and what with. */
export interface Hop {
  url: URL
  headers: Headers
  /** Headers for the first URL's own origin. */
  credentials: Headers
}

/**
 * Opens the hop and follows its redirects, at most MAX_REDIRECTS of them. Credentials, `authorization` and `cookie` are dropped for good
 * at the first redirect to another scheme, host or port. Throws ConfigError `insecure_url` for a hop that the policy refuses,
 * ArtifactError `bad_response` for a redirect without a usable target, a circle or one too many, and whatever `open` throws.
 */
export async function followRedirects(
  start: Hop,
  open: (hop: Hop) => Promise<Exchange>,
  policy: UrlPolicy,
  log: (line: string) => void,
): Promise<Exchange> {
  const visited = [start.url.href]
  let hop = start
  for (;;) {
    const exchange = await open(hop)
    if (!REDIRECT_STATUSES.has(exchange.status)) return exchange
    exchange.close()
    hop = nextHop(hop, exchange, policy)
    refuseEndlessChain(visited, hop.url)
    visited.push(hop.url.href)
    log(`${exchange.url.origin} redirects (HTTP ${exchange.status}) to ${hop.url.origin}.`)
  }
}

const REDIRECT_STATUSES = new Set([301, 302, 303, 307, 308])

function nextHop(hop: Hop, exchange: Exchange, policy: UrlPolicy): Hop {
  const url = readTarget(hop.url, exchange)
  refuseInsecureUrl(url, policy)
  refuseInsecureHop(hop.url, url)
  return url.origin === hop.url.origin ? { ...hop, url } : { url, headers: withoutIdentity(hop), credentials: {} }
}

function readTarget(from: URL, exchange: Exchange): URL {
  const location = exchange.headers['location'] ?? ''
  if (location === '' || !URL.canParse(location, from.href)) {
    const found =
      location === ''
        ? 'no Location header'
        : `the Location "${cleanForeignText(location.replace(/[?#].*$/s, ''), 100)}"`
    throw badRedirect(from, `expected a redirect (HTTP ${exchange.status}) with a usable target, found ${found}`)
  }
  return new URL(location, from)
}

function refuseEndlessChain(visited: string[], next: URL): void {
  if (visited.includes(next.href)) throw badRedirect(next, 'its redirects lead in a circle')
  if (visited.length > MAX_REDIRECTS) throw badRedirect(next, `expected at most ${MAX_REDIRECTS} redirects, found more`)
}

function withoutIdentity(hop: Hop): Headers {
  const dropped = new Set(['authorization', 'cookie', ...Object.keys(hop.credentials)])
  return Object.fromEntries(Object.entries(hop.headers).filter(([name]) => !dropped.has(name)))
}

function badRedirect(url: URL, finding: string): ArtifactError {
  return new ArtifactError('bad_response', `${url.origin}: ${finding}. Check the URL, or report it to the hub.`)
}
