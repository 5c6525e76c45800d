import { BlockList, isIP, isIPv6, type LookupFunction } from 'node:net'
import { ConfigError } from '../../core/errors.ts'

/** The function that resolves names, and the addresses of this host. */
export interface AddressSources {
  resolve: LookupFunction
  ownAddresses: () => readonly string[]
}

/**
 * Judges the addresses to which a hub or publisher sends a request, by a redirect, a `download_url` or a git source.
 * Refuses the addresses of this host and all loopback, unspecified and link-local addresses, unless the operator's own
 * URL resolves to the same address. For a direct connection, judges exactly the addresses that the connection then
 * uses: a name cannot resolve to another address in between. `server` is the server's name in messages.
 */
export class AddressPolicy {
  readonly #sources: AddressSources
  /** The addresses of each host that an operator's URL names, from the latest lookup of that host. */
  readonly #granted = new Map<string, readonly string[]>()

  constructor(sources: AddressSources) {
    this.#sources = sources
  }

  /** Returns the lookup for the operator's own URL. It refuses no address, and notes all of them as granted. */
  grantingLookup(hub: URL): LookupFunction {
    return (name, options, callback) =>
      this.#sources.resolve(name, { ...options, all: true }, (error, found) => {
        const addresses = listed(found)
        if (error === null) this.#granted.set(hub.hostname, addresses)
        answer(addresses, error, { options, callback })
      })
  }

  /**
   * Returns the lookup for any other URL. It omits addresses that must not be reached, and fails with ConfigError
   * `insecure_url` if none is left.
   */
  judgingLookup(url: URL, hub: URL, server = url.origin): LookupFunction {
    return (name, options, callback) =>
      this.#sources.resolve(name, { ...options, all: true }, (error, found) =>
        this.#withGranted(hub, granted => {
          const usable = listed(found).filter(address => !this.#isRefused(address, granted))
          const refusal = error ?? (usable.length === 0 ? reachesThisHost(server) : null)
          answer(usable, refusal, { options, callback })
        }),
      )
  }

  /**
   * Refuses a URL that names its host by an address that must not be reached. No lookup sees such a host. Throws
   * ConfigError `insecure_url`.
   */
  async verifyLiteral(url: URL, hub: URL, server = url.origin): Promise<void> {
    const address = bare(url.hostname)
    if (isIP(address) === 0 || !this.#isRefused(address, [])) return
    const granted = await new Promise<readonly string[]>(resolve => this.#withGranted(hub, resolve))
    if (this.#isRefused(address, granted)) throw reachesThisHost(server)
  }

  /**
   * Judges a URL whose host name a proxy resolves. This host can judge only an address or a local name. Throws as
   * `verifyLiteral` does.
   */
  async verifyProxied(url: URL, hub: URL, server = url.origin): Promise<void> {
    await this.verifyLiteral(url, hub, server)
    if (isLocalName(url.hostname) && !isLocalName(hub.hostname)) throw reachesThisHost(server)
  }

  #withGranted(hub: URL, use: (granted: readonly string[]) => void): void {
    const host = bare(hub.hostname)
    const granted = isIP(host) === 0 ? this.#granted.get(hub.hostname) : [host]
    if (granted !== undefined) use(granted)
    else this.#sources.resolve(host, { all: true }, (_, found) => use(listed(found)))
  }

  #isRefused(address: string, granted: readonly string[]): boolean {
    const plain = address.replace(/%.*$/, '')
    if (granted.includes(address) || granted.includes(plain)) return false
    return refusedAddresses(this.#sources.ownAddresses()).check(plain, familyOf(plain))
  }
}

/**
 * Returns the loopback, unspecified and link-local addresses, including IPv4 ones in IPv6 notation, and those of this
 * host.
 */
function refusedAddresses(own: readonly string[]): BlockList {
  const list = new BlockList()
  list.addSubnet('127.0.0.0', 8, 'ipv4')
  list.addSubnet('0.0.0.0', 8, 'ipv4')
  list.addSubnet('169.254.0.0', 16, 'ipv4')
  list.addSubnet('::', 96, 'ipv6')
  list.addSubnet('fe80::', 10, 'ipv6')
  list.addSubnet('64:ff9b::7f00:0', 104, 'ipv6')
  for (const address of own) list.addAddress(address.replace(/%.*$/, ''), familyOf(address))
  return list
}

function familyOf(address: string): 'ipv4' | 'ipv6' {
  return isIPv6(address) ? 'ipv6' : 'ipv4'
}

function bare(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '')
}

function isLocalName(hostname: string): boolean {
  return /(?:^|\.)localhost\.?$/.test(hostname)
}

type Callback = Parameters<LookupFunction>[2]

function listed(found: Parameters<Callback>[1]): string[] {
  return (Array.isArray(found) ? found : []).map(({ address }) => address)
}

interface Question {
  readonly options: Parameters<LookupFunction>[1]
  readonly callback: Callback
}

function answer(addresses: readonly string[], error: Error | null, { options, callback }: Question): void {
  const all = addresses.map(address => ({ address, family: isIPv6(address) ? 6 : 4 }))
  if (error !== null || options.all === true) callback(error, all)
  else callback(null, all[0]?.address ?? '', all[0]?.family)
}

function reachesThisHost(server: string): ConfigError {
  return new ConfigError(
    'insecure_url',
    `${server} leads to a loopback, link-local or unspecified address, or to one of this host's own addresses: nothing was requested there. Report this to the hub's operator or, for a git repository, to the publisher.`,
  )
}
