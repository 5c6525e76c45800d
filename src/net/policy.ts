import { X509Certificate } from 'node:crypto'
import { BlockList, isIP, isIPv6, type LookupFunction } from 'node:net'
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls'
import { ConfigError } from '../core/errors.ts'
import { cleanForeignText } from '../core/text.ts'

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

  /** Judges a URL whose host name a proxy resolves. This host can judge only an address or a local name. */
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

export interface UrlPolicy {
  /** Accepts plain http for any host, not only for loopback addresses. */
  allowHttp: boolean
}

/**
 * Parses a URL that may be requested: https, or plain http for a loopback address (with `allowHttp`, for any host). It
 * must not contain userinfo. Throws ConfigError `invalid_input` if the text is not a URL, and `insecure_url` if the
 * policy refuses the URL.
 */
export function parseRequestUrl(text: string, policy: UrlPolicy): URL {
  if (!URL.canParse(text)) {
    throw new ConfigError(
      'invalid_input',
      `Expected an absolute https URL, found "${withoutSecrets(text)}": check the input.`,
    )
  }
  const url = new URL(text)
  refuseInsecureUrl(url, policy)
  return url
}

/** Throws ConfigError `insecure_url` unless the URL may be requested at all; see `parseRequestUrl`. */
export function refuseInsecureUrl(url: URL, policy: UrlPolicy): void {
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw insecure(`Expected an https URL, found the scheme "${url.protocol.slice(0, -1)}": check the URL.`)
  }
  if (url.username !== '' || url.password !== '') {
    throw insecure(`The URL of ${url.host} contains a user name or password: pass credentials in their own inputs.`)
  }
  if (url.protocol === 'http:' && !policy.allowHttp && !isLoopback(url.hostname)) {
    throw insecure(
      `${url.origin} is plain http, which anyone on the network path can read and change: use https, or set allow-http if you accept that.`,
    )
  }
}

/**
 * Throws ConfigError `insecure_url` for a redirect from https to http, even with `allowHttp`, and for any redirect to a
 * URL that no policy accepts.
 */
export function refuseInsecureHop(from: URL, to: URL): void {
  const fault = faultOf(to)
  if (fault !== undefined) {
    throw insecure(
      `Expected ${from.origin} to redirect to an https URL, found one with ${fault}: the redirect was not followed. Report this to the hub's operator.`,
    )
  }
  if (from.protocol === 'https:' && to.protocol !== 'https:') {
    throw insecure(
      `${from.origin} redirects from https to ${to.origin}, which is not https: the redirect was not followed. Report this to the hub's operator.`,
    )
  }
}

/** Names the part of the URL that every policy refuses, as a noun phrase; undefined if there is none. */
export function faultOf({ protocol, username, password }: URL): string | undefined {
  if (protocol !== 'https:' && protocol !== 'http:')
    return `the scheme "${cleanForeignText(protocol.slice(0, -1), 60)}"`
  return username === '' && password === '' ? undefined : 'a user name or password'
}

/**
 * True if plain http to the host cannot leave the machine: 127.0.0.0/8, ::1 and `localhost`, but no name that merely
 * resembles them.
 */
export function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || LOOPBACK_IPV4.test(hostname)
}

const LOOPBACK_IPV4 = /^127(?:\.\d{1,3}){3}$/

function withoutSecrets(text: string): string {
  return cleanForeignText(text.replace(/[?#].*$/s, '').replace(/\/\/[^/]*@/, '//'), 100)
}

function insecure(message: string): ConfigError {
  return new ConfigError('insecure_url', message)
}

/** `rejectUnauthorized` is set explicitly so that NODE_TLS_REJECT_UNAUTHORIZED=0 in the environment changes nothing. */
export interface Trust {
  rejectUnauthorized: true
  secureContext?: SecureContext
}

/**
 * Reads the authorities that TLS trusts: Node's defaults, and those in `ca` (PEM). Throws ConfigError `invalid_input`
 * if `ca` contains no certificate or a damaged one.
 */
export function readTrust(ca: string | undefined): Trust {
  if (ca === undefined) return { rejectUnauthorized: true }
  const fault = faultOfAuthorities(ca)
  if (fault !== undefined) throw new ConfigError('invalid_input', `ca-file ${fault}: check the file.`)
  return {
    rejectUnauthorized: true,
    // An intermediate authority may be trusted without its root, as curl trusts it.
    secureContext: createSecureContext({ ca: allAuthorities(ca), allowPartialTrustChain: true }),
  }
}

/**
 * Returns what is wrong with a file of authorities, as the predicate of a sentence; undefined if nothing is. A damaged
 * certificate is a fault, because otherwise a server of that authority would be refused without a hint at the file.
 */
export function faultOfAuthorities(ca: string): string | undefined {
  const certificates = certificatesIn(ca)
  if (certificates.length === 0) return 'contains no certificate in PEM form (-----BEGIN CERTIFICATE-----)'
  const damaged = certificates.findIndex(pem => !isCertificate(pem))
  if (damaged === -1) return undefined
  return `contains a damaged certificate (number ${damaged + 1} of ${certificates.length}, on line ${lineOf(ca, damaged)})`
}

/**
 * Returns Node's default authorities and those in `ca`. Each is a separate text, because TLS ignores the rest of a text
 * after a block that it cannot read.
 */
export function allAuthorities(ca: string): string[] {
  return [...getCACertificates('default'), ...certificatesIn(ca)]
}

function certificatesIn(ca: string): string[] {
  const starts = startsIn(ca)
  return starts.map((start, i) => ca.slice(start, starts[i + 1]).replace(AFTER_END, '$1\n'))
}

/** A certificate begins on a line of its own, or directly after the end of another block. */
const BEGIN = /(?<=^\uFEFF?|-----)-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----/gm
const AFTER_END = /(-----END (?:X509 |TRUSTED )?CERTIFICATE-----).*$/s

function startsIn(ca: string): number[] {
  return [...ca.matchAll(BEGIN)].map(({ index }) => index)
}

function lineOf(ca: string, nth: number): number {
  return ca.slice(0, startsIn(ca)[nth]).split('\n').length
}

function isCertificate(pem: string): boolean {
  try {
    new X509Certificate(pem)
    return true
  } catch {
    return false
  }
}
