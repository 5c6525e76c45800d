import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import http from 'node:http'
import https from 'node:https'
import type { AddressInfo } from 'node:net'
import net from 'node:net'
import type { Duplex } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { ArtifactError } from '../core/errors.ts'
import { explainFailure } from './exchange.ts'
import { findProxy, type HttpProxy } from './proxy.ts'
import type { WireSettings } from './settings.ts'

/** A server, the route to it, and the number of bytes that it may send. */
interface RelayTarget {
  readonly url: URL
  readonly route: ChildRoute
  readonly maxBytes: number
}

/**
 * A proxy in this process, on loopback. It is the only connection to a server for a program that speaks HTTPS itself.
 * It connects only to the judged addresses or through the environment's proxy. It counts the bytes that arrive on all
 * connections together, and breaks any connection on which bytes beyond `maxBytes` arrive. It sees no plaintext. Its
 * connections end with this process, however this process ends.
 */
export class Relay {
  readonly #target: RelayTarget
  readonly #password = randomBytes(24).toString('hex')
  readonly #server = http.createServer((_, response) => response.writeHead(405).end())
  readonly #sockets = new Set<Duplex>()
  #received = 0
  #isUnreached = false

  constructor(target: RelayTarget) {
    this.#target = target
    this.#server.on('connection', socket => this.#keep(socket))
    this.#server.on('connect', (request, client, head) => void this.#relay(request, client, head))
  }

  /** Opens the proxy. Returns its URL, whose password keeps out the host's other accounts. */
  async open(): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    this.#server.once('error', reject).listen(0, '127.0.0.1', resolve)
    await promise
    return `http://relay:${this.#password}@127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  get received(): number {
    return this.#received
  }

  /** True if the server has sent more than it may. */
  get isOverflowing(): boolean {
    return this.#received > this.#target.maxBytes
  }

  /** True if a connection to the server could not be made. */
  get isUnreached(): boolean {
    return this.#isUnreached
  }

  close(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  async #relay(request: IncomingMessage, client: Duplex, head: Buffer): Promise<void> {
    if (!this.#isAllowed(request)) return void client.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n')
    if (head.length > 0) client.unshift(head)
    try {
      const server = this.#keep(await this.#reach())
      client.write('HTTP/1.1 200 Connection established\r\n\r\n')
      await Promise.all([pipeline(client, server), pipeline(server, pieces => this.#count(pieces), client)])
    } catch {
      // The program sees only a broken connection; `isOverflowing` and `isUnreached` give the reason.
      client.destroy()
    }
  }

  #isAllowed({ url, headers }: IncomingMessage): boolean {
    const credentials = `Basic ${Buffer.from(`relay:${this.#password}`).toString('base64')}`
    return url === authorityOf(this.#target.url) && headers['proxy-authorization'] === credentials
  }

  async #reach(): Promise<Duplex> {
    const { url, route } = this.#target
    try {
      return await ('proxy' in route ? connectThrough(route.proxy, url) : connectTo(url, route.addresses))
    } catch (error) {
      this.#isUnreached = true
      throw error
    }
  }

  async *#count(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const piece of pieces) {
      this.#received += piece.length
      if (this.isOverflowing) throw new Error('the server sends too much')
      yield piece
    }
  }

  #keep<Socket extends Duplex>(socket: Socket): Socket {
    this.#sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => this.#sockets.delete(socket))
    return socket
  }
}

function authorityOf({ hostname, port }: URL): string {
  return `${hostname}:${port || '443'}`
}

function withoutBrackets(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '')
}

/** Asks no name server, because the name could resolve to another address by now. */
async function connectTo({ hostname, port }: URL, addresses: readonly string[]): Promise<Duplex> {
  const found = addresses.map(address => ({ address, family: net.isIP(address) }))
  const socket = net.connect({
    ...{ host: withoutBrackets(hostname), port: Number(port || 443), autoSelectFamily: true },
    lookup: (_name, _options, done) => done(null, found),
  })
  await once(socket, 'connect')
  return socket
}

async function connectThrough(proxy: HttpProxy, target: URL): Promise<Duplex> {
  const { host, port, authorization } = proxy
  const credentials = authorization === undefined ? {} : { 'proxy-authorization': authorization }
  const path = authorityOf(target)
  const asked = (proxy.scheme === 'https' ? https : http).request({
    ...{ host, port, agent: false },
    ...{ method: 'CONNECT', path, headers: { host: path, ...credentials } },
  })
  asked.end()
  const [answer, socket, head] = (await once(asked, 'connect')) as [IncomingMessage, Duplex, Buffer]
  if (head.length > 0) socket.unshift(head)
  if (answer.statusCode === 200) return socket
  socket.destroy()
  throw new Error(`the proxy answered ${answer.statusCode}`)
}

/** The route that a program must use if it speaks HTTP itself, so that the address rules apply to that program too. */
export type ChildRoute =
  | {
      /** The proxy that the environment names. */
      readonly proxy: HttpProxy
    }
  | {
      /** The judged addresses. The program may connect to no others, and must not resolve the name again. */
      readonly addresses: readonly string[]
    }

/**
 * Judges the address of a URL that a hub or publisher chose, as for a redirect, and returns the only route to use.
 * Throws ConfigError `insecure_url` for an address that must not be reached, `invalid_input` for an unusable proxy
 * variable, and ArtifactError `network` or `timeout`
 * if the name cannot be resolved. Throws the signal's reason if the signal is aborted before the name is resolved.
 */
export async function routeForChild(
  url: URL,
  hub: URL,
  { addresses, signal, timeouts }: Pick<WireSettings, 'addresses' | 'signal' | 'timeouts'>,
): Promise<ChildRoute> {
  const proxy = findProxy(url)
  if (proxy !== undefined) {
    await addresses.verifyProxied(url, hub)
    return { proxy }
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
