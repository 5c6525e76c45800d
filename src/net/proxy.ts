import { BlockList, isIP, isIPv6 } from 'node:net'
import { ConfigError } from '../core/errors.ts'
import { isLoopback } from './policy.ts'

type Environment = Readonly<Record<string, string | undefined>>

/** An HTTP proxy that the environment names. */
export interface HttpProxy {
  readonly scheme: 'http' | 'https'
  /** Without brackets. */
  readonly host: string
  readonly port: number
  /** The value of `proxy-authorization`; undefined without a user name. Never to be printed. */
  readonly authorization: string | undefined
  /** The name of the variable, for messages. */
  readonly variable: string
}

/**
 * Returns the proxy for a URL, as curl reads it: `https_proxy` or `http_proxy`, then `all_proxy`, in lower or upper
 * case, the scheme optional, the user name and password percent-encoded. Returns undefined for a host that `no_proxy`
 * names, and for this host. Throws ConfigError `invalid_input`, which names the variable and not its value, for
 * anything that curl could not use either, and for a proxy that is not an HTTP proxy: a connection must never bypass a
 * proxy because of a typo.
 */
export function findProxy(url: URL, env: Environment = process.env): HttpProxy | undefined {
  const named = firstSet(env, [`${url.protocol.slice(0, -1)}_proxy`, 'all_proxy'])
  if (named === undefined || isLoopback(url.hostname) || isBypassed(url, env)) return undefined
  return parseProxy(named)
}

interface Variable {
  readonly name: string
  readonly value: string
}

function firstSet(env: Environment, names: readonly string[]): Variable | undefined {
  const set = names.flatMap(name => [name, name.toUpperCase()]).find(name => (env[name] ?? '') !== '')
  return set === undefined ? undefined : { name: set, value: (env[set] ?? '').trim() }
}

const PROXY =
  /^(?:(?<scheme>[a-z][a-z0-9+.-]*):\/\/)?(?:(?<credentials>[^/?#]*)@)?(?<host>\[[^\]]*\]|[^:/?#@[\]\s]+)(?::(?<port>\d{1,5}))?\/?$/i
/** curl's default for a proxy without TLS. */
const PROXY_PORT = 1080

function parseProxy({ name, value }: Variable): HttpProxy {
  const { scheme = 'http', credentials, host = '', port } = PROXY.exec(value)?.groups ?? {}
  const kind = scheme.toLowerCase()
  if (kind !== 'http' && kind !== 'https')
    throw unusable(
      name,
      `names a proxy of the kind "${kind.slice(0, 20)}", but only http and https proxies can be used`,
    )
  const number = port === undefined ? (kind === 'https' ? 443 : PROXY_PORT) : Number(port)
  if (number < 1 || number > 65_535 || !URL.canParse(`http://${host}`))
    throw unusable(
      name,
      'is not of the form http://user:password@host:port. Percent-encode special characters in the user name and password (# is %23, @ is %40, / is %2F)',
    )
  const bare = host.replace(/^\[|\]$/g, '')
  const authorization = credentials === undefined ? undefined : basic(credentials)
  return { scheme: kind, host: bare, port: number, authorization, variable: name }
}

/** Decodes what is percent-encoded, and leaves any other `%` as it is, as curl does. */
function basic(credentials: string): string {
  const pair = credentials.includes(':') ? credentials : `${credentials}:`
  const bytes = Buffer.from(pair)
    .toString('latin1')
    .replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)))
  return `Basic ${Buffer.from(bytes, 'latin1').toString('base64')}`
}

/** True if `no_proxy` names the host: `*`, a name and all names below it, an address, a network, each with a port. */
function isBypassed(url: URL, env: Environment): boolean {
  const list = firstSet(env, ['no_proxy'])
  if (list === undefined) return false
  const host = url.hostname.replace(/^\[|\]$|\.$/g, '').toLowerCase()
  const port = url.port || (url.protocol === 'https:' ? '443' : '80')
  return list.value
    .toLowerCase()
    .split(/[\s,]+/)
    .some(entry => entry !== '' && covers(entry, { host, port, variable: list.name }))
}

interface Asked {
  readonly host: string
  readonly port: string
  readonly variable: string
}

function covers(entry: string, { host, port, variable }: Asked): boolean {
  if (entry === '*') return true
  if (entry.includes('/')) return isInNetwork(host, entry, variable)
  const { name = '', only } = /^(?<name>\[[^\]]*\]|[^:]*|.*:.*:.*?)(?::(?<only>\d+))?$/.exec(entry)?.groups ?? {}
  if (only !== undefined && only !== port) return false
  const bare = name.replace(/^\[|\]$/g, '')
  if (isIP(host) !== 0 || isIP(bare) !== 0) return isSameAddress(host, bare)
  const isWild = bare.startsWith('*.')
  const suffix = bare.replace(/^\*?\./, '').replace(/\.$/, '')
  return suffix !== '' && ((!isWild && host === suffix) || host.endsWith(`.${suffix}`))
}

function isSameAddress(host: string, entry: string): boolean {
  if (isIP(host) === 0 || isIP(entry) === 0) return false
  const list = new BlockList()
  list.addAddress(entry, familyOf(entry))
  return list.check(host, familyOf(host))
}

function isInNetwork(host: string, entry: string, variable: string): boolean {
  const [network = '', bits = '', ...rest] = entry.replace(/[[\]]/g, '').split('/')
  const most = isIPv6(network) ? 128 : 32
  if (isIP(network) === 0 || rest.length > 0 || !/^\d{1,3}$/.test(bits) || Number(bits) > most)
    throw unusable(
      variable,
      `has an entry that is not a network such as 10.0.0.0/8: ${JSON.stringify(entry.slice(0, 60))}`,
    )
  if (isIP(host) === 0) return false
  const list = new BlockList()
  list.addSubnet(network, Number(bits), familyOf(network))
  return list.check(host, familyOf(host))
}

function familyOf(address: string): 'ipv4' | 'ipv6' {
  return isIPv6(address) ? 'ipv6' : 'ipv4'
}

function unusable(variable: string, problem: string): ConfigError {
  return new ConfigError('invalid_input', `The environment variable ${variable} ${problem}. Nothing was requested.`)
}
