import { promisify } from 'node:util'
import { getProxyUrl } from '@actions/http-client/lib/proxy'
import { ArtifactError } from '../../core/errors.ts'
import { explainFailure } from '../exchange/failures.ts'
import type { WireSettings } from '../settings.ts'

/** The route that a program must use if it speaks HTTP itself, so that the address rules apply to that program too. */
export type ChildRoute =
  | {
      /** The URL of the proxy that the environment names; it may contain a password. */
      readonly proxy: string
    }
  | {
      /** The judged addresses. The program may connect to no others, and must not resolve the name again. */
      readonly addresses: readonly string[]
    }

/**
 * Judges the address of a URL that a hub or publisher chose, as for a redirect, and returns the only route to use.
 * Throws ConfigError `insecure_url` for an address that must not be reached, and ArtifactError `network` or `timeout`
 * if the name cannot be resolved. Throws the signal's reason if the signal is aborted before the name is resolved.
 */
export async function routeForChild(
  url: URL,
  hub: URL,
  { addresses, signal, timeouts }: Pick<WireSettings, 'addresses' | 'signal' | 'timeouts'>,
): Promise<ChildRoute> {
  const proxy = getProxyUrl(url)
  if (proxy !== undefined) {
    await addresses.verifyProxied(url, hub)
    return { proxy: proxy.href }
  }
  await addresses.verifyLiteral(url, hub)
  if (isAddress(url.hostname)) return { addresses: [url.hostname.replace(/^\[|\]$/g, '')] }
  const found = resolveName(url, async () => {
    const lookup = promisify(addresses.judgingLookup(url, hub)) as unknown as AllLookup
    return await lookup(url.hostname, { all: true })
  })
  return { addresses: await within(found, { url, signal, ms: timeouts.connectMs }) }
}

type AllLookup = (name: string, options: { all: true }) => Promise<{ address: string }[]>

async function resolveName(url: URL, lookup: () => Promise<{ address: string }[]>): Promise<string[]> {
  try {
    return (await lookup()).map(({ address }) => address)
  } catch (error) {
    throw explainFailure(error, { server: url.origin, foreign: false, sent: false })
  }
}

/** Limits the time for a lookup: a name server that does not answer must not delay a cancel. */
async function within<T>(found: Promise<T>, limit: { url: URL; signal: AbortSignal; ms: number }): Promise<T> {
  const { url, signal, ms } = limit
  signal.throwIfAborted()
  const late = Promise.withResolvers<never>()
  const message = `The host name of ${url.origin} was not resolved within ${ms / 1000} s: check the URL and the network.`
  const timer = setTimeout(() => late.reject(new ArtifactError('timeout', message)), ms)
  const cancel = (): void => late.reject(signal.reason)
  signal.addEventListener('abort', cancel, { once: true })
  try {
    return await Promise.race([found, late.promise])
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', cancel)
  }
}

/** True if the host is an address. The URL parser has turned every form of an IPv4 address into four numbers. */
function isAddress(hostname: string): boolean {
  return hostname.startsWith('[') || /^\d{1,3}(?:\.\d{1,3}){3}$/.test(hostname)
}
