import http, {
  type Agent,
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  validateHeaderName,
  validateHeaderValue,
} from 'node:http'
import https from 'node:https'
import type { LookupFunction, Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { HttpClient } from '@actions/http-client'
import { weighOnHeap } from '../core/bytes.ts'
import { ArtifactError, ConfigError, DeployError, type ErrorCode, type ErrorOptions, errnoOf } from '../core/errors.ts'
import { cleanForeignText } from '../core/text.ts'
import { findProxy, type HttpProxy } from './proxy.ts'
import type { WireSettings } from './settings.ts'

interface HttpRequest {
  method: 'GET' | 'POST'
  url: URL
  headers: Headers
  body: string | undefined
  /** The URL that the operator gave. If `url` is any other URL, its address is judged. */
  hub: URL
  /** The name of the server in messages: the URL's origin, unless a foreign answer gave the URL. */
  server: string
}

/** An answer whose head has arrived. Its receiver must close it. */
export interface Exchange {
  status: number
  headers: Headers
  url: URL
  /** See `HttpRequest`. */
  server: string
  /**
   * True if the answer is from a different origin than the operator's URL. No message quotes a foreign answer, because
   * messages are sent to the hub.
   */
  foreign: boolean
  /** The body's bytes as they arrive; a slow reader slows the server down. */
  body: AsyncIterable<Buffer>
  /** Ends the connection, even when part of the body is still to come. */
  close: () => void
}

/**
 * Sends one request on a separate connection and waits for the head of the answer; a redirect is an answer too. Throws
 * ConfigError `insecure_url` for an address that must not be reached, and TransientError `network` or `timeout`. Throws
 * ArtifactError `network` for a refused certificate, and `bad_response` for an answer that is not HTTP or is HTTP 101.
 * Throws the reason of the settings' signal once that signal is aborted.
 */
export async function openExchange(request: HttpRequest, settings: WireSettings): Promise<Exchange> {
  const proxy = findProxy(request.url)
  const watch = new ConnectionWatch({ server: request.server, foreign: isForeign(request) }, settings)
  try {
    const refusal = settings.proxyRefusals.get(proxy?.variable ?? '')
    if (refusal !== undefined) throw refusal
    const { signal } = watch
    const route = await findRoute(request, { ...settings, signal, proxy })
    const sent = startRequest(request, { ...route, signal })
    watch.follow(sent)
    const answer = await receiveHead(sent.end(request.body), request)
    return {
      status: answer.statusCode ?? 0,
      headers: readResponseHeaders(answer.headers),
      url: request.url,
      server: request.server,
      foreign: isForeign(request),
      body: receiveBody(answer, watch),
      close: () => watch.close(),
    }
  } catch (error) {
    throw watch.endWith(proxy === undefined ? error : explainProxyRefusal(error, proxy, { request, settings }))
  }
}

function isForeign({ url, hub }: HttpRequest): boolean {
  return url.origin !== hub.origin
}

/** Explains why a proxy did not open a tunnel; returns any other error as it is. */
function explainProxyRefusal(
  error: unknown,
  { variable }: HttpProxy,
  { request, settings }: { request: HttpRequest; settings: WireSettings },
): unknown {
  const { status } =
    /^tunneling socket could not be established, statusCode=(?<status>\d+)/.exec(String((error as Error)?.message))
      ?.groups ?? {}
  if (status === undefined) return error
  if (status !== '407') {
    const message = `The proxy that ${variable} names refused to connect to ${request.server} (HTTP ${status}): ask whoever runs the proxy, or add the host to no_proxy.`
    return new TransientError('network', message, { sent: false, cause: error })
  }
  const message = `The proxy that ${variable} names refused its user name and password (HTTP 407): correct them there. Percent-encode special characters.`
  const refusal = new ArtifactError('network', message, { cause: error })
  settings.proxyRefusals.set(variable, refusal)
  return refusal
}

interface Route {
  readonly agent: Agent
  readonly lookup: LookupFunction
}

async function findRoute(
  request: HttpRequest,
  settings: WireSettings & { proxy: HttpProxy | undefined },
): Promise<Route> {
  const isProxied = settings.proxy !== undefined
  return { agent: createAgent(request.url, settings), lookup: await lookupFor(request, { ...settings, isProxied }) }
}

function startRequest(
  { url, method, headers }: HttpRequest,
  { agent, lookup, signal }: Route & Pick<WireSettings, 'signal'>,
): ClientRequest {
  const { request } = url.protocol === 'https:' ? https : http
  return request(url, { method, headers: { ...headers, connection: 'close' }, agent, lookup, signal })
}

/**
 * Returns the lookup for a direct connection. Throws ConfigError `insecure_url` if the URL alone shows that its address
 * must not be reached.
 */
async function lookupFor(
  { url, hub, server }: HttpRequest,
  { addresses, isProxied }: WireSettings & { isProxied: boolean },
): Promise<LookupFunction> {
  if (url.href === hub.href) return addresses.grantingLookup(hub)
  if (isProxied) await addresses.verifyProxied(url, hub, server)
  else await addresses.verifyLiteral(url, hub, server)
  return addresses.judgingLookup(url, hub, server)
}

/** Settles whenever the request ends, even if the server switches to another protocol or closes without an error. */
function receiveHead(sent: ClientRequest, request: HttpRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const refuse = () => reject(unusableAnswer(request, 'an HTTP answer', 'HTTP 101 (a switch to another protocol)'))
    sent.on('response', answer => (answer.statusCode === 101 ? refuse() : resolve(answer)))
    sent.on('upgrade', (_, socket) => {
      socket.destroy()
      refuse()
    })
    // This listener stays after the answer has begun: the request may still fail, and the body reports that.
    sent.on('error', reject)
    sent.on('close', () => reject(new Error('closed without an answer')))
  })
}

async function* receiveBody(answer: IncomingMessage, watch: ConnectionWatch): AsyncGenerator<Buffer> {
  try {
    watch.awaitServer()
    for await (const chunk of answer) {
      watch.pause()
      weighOnHeap(chunk)
      yield chunk
      watch.awaitServer()
    }
  } catch (error) {
    throw watch.endWith(error)
  }
}

type WatchSettings = Pick<WireSettings, 'timeouts' | 'signal' | 'startTimer'>

/**
 * Watches one connection. Aborts `signal` with TransientError `timeout` if the connection is not ready within
 * `connectMs`, or if the server then stays silent for `idleMs` while this client waits for it. The time that the client
 * itself takes does not count.
 */
export class ConnectionWatch {
  readonly server: string
  readonly foreign: boolean
  /** Aborted when a timeout expires, when the settings' signal is aborted, and when the connection has ended. */
  readonly signal: AbortSignal
  /** True if the connection was ready, so that bytes of the request may have left. */
  sent = false
  readonly #controller = new AbortController()
  readonly #settings: WatchSettings
  #request: ClientRequest | undefined
  #stopTimer: () => void

  constructor({ server, foreign }: Omit<ConnectionState, 'sent'>, settings: WatchSettings) {
    this.server = server
    this.foreign = foreign
    this.#settings = settings
    this.signal = AbortSignal.any([settings.signal, this.#controller.signal])
    const expire = () => this.#controller.abort(this.#unconnected())
    this.#stopTimer = settings.startTimer(settings.timeouts.connectMs, expire)
  }

  /**
   * Starts to wait for the server once the request's connection is ready. A TLS connection is ready once the
   * certificate is verified.
   */
  follow(request: ClientRequest): void {
    this.#request = request
    request.once('socket', socket => whenReady(socket, () => this.#ready()))
  }

  /** Starts to count the server's silence, because it is the server's turn. */
  awaitServer(): void {
    this.#stopTimer()
    const expire = () => this.#controller.abort(this.#silent())
    this.#stopTimer = this.#settings.startTimer(this.#settings.timeouts.idleMs, expire)
  }

  /** Stops counting, because it is this client's turn. */
  pause(): void {
    this.#stopTimer()
  }

  /**
   * Ends the connection of an answered request, even if part of the body is still to come. The signal is aborted only
   * once the request is closed, to release what still listens to it. If it were aborted at once, Node.js would create
   * two errors and format their stacks, for which V8 counts the lines of the bundle.
   */
  close(): void {
    this.pause()
    const release = (): void => this.#controller.abort()
    if (this.#request === undefined || this.#request.closed) release()
    else this.#request.once('close', release).destroy()
  }

  /**
   * Ends the connection, in any state, after an error, and returns the error to throw. If the signal is aborted, this
   * is the signal's reason; otherwise, it is the error, explained.
   */
  endWith(error: unknown): unknown {
    const reason = this.signal.aborted ? this.signal.reason : explainFailure(error, this)
    this.pause()
    this.#controller.abort()
    return reason
  }

  #ready(): void {
    this.sent = true
    this.awaitServer()
  }

  #unconnected(): TransientError {
    const message = `Could not connect to ${this.server} within ${this.#settings.timeouts.connectMs / 1000} s: ${CONNECTION_ADVICE}`
    return new TransientError('timeout', message, { sent: false })
  }

  #silent(): TransientError {
    const message = `${this.server} sent nothing for ${this.#settings.timeouts.idleMs / 1000} s: check the server and the network.`
    return new TransientError('timeout', message, { sent: true })
  }
}

function whenReady(socket: Socket, ready: () => void): void {
  // A connection to an https proxy has already been secured when a request gets it.
  if (socket instanceof TLSSocket && !socket.authorized) socket.once('secureConnect', ready)
  else if (socket.connecting) socket.once('connect', ready)
  else ready()
}

/** The facts about a connection that an operator needs. */
interface ConnectionState {
  /** The server's origin, or another name for it in messages. */
  server: string
  /** True if the server is not the operator's. If so, no message quotes what it sent, such as its certificate. */
  foreign: boolean
  /** False when no byte of the request can have reached the server. */
  sent: boolean
}

/** A failure that another attempt may avoid: a failed connection, or an answer that may differ later. */
export class TransientError extends ArtifactError {
  /** False when no byte of the request can have reached the server. */
  readonly sent: boolean

  constructor(code: ErrorCode, message: string, options: ErrorOptions & { sent: boolean }) {
    super(code, message, options)
    this.sent = options.sent
  }
}

/**
 * Turns an error on a connection into one that explains the failure to the operator; returns a DeployError as it is.
 * The code is `bad_response` for an answer that is not HTTP, otherwise `network`. Every `network` error is a
 * TransientError, except for a refused certificate and an old version of TLS. The message names no path and no query: both may contain tokens.
 */
export function explainFailure(error: unknown, { server, foreign, sent }: ConnectionState): DeployError {
  if (error instanceof DeployError) return error
  const code = errnoOf(error) ?? ''
  const reason = foreign ? foreignReason(error, code) : reasonOf(error)
  if (code === 'HPE_HEADER_OVERFLOW') {
    const message = `${server} sent more than 16 KiB of headers: ${ANSWER_ADVICE}`
    return new ArtifactError('bad_response', message, { cause: error })
  }
  if (code.startsWith('HPE_')) {
    const advice = server.startsWith('http:')
      ? 'check the URL and its port, and whether the URL should be https instead of http.'
      : 'check the URL and its port.'
    const message = `${server} did not send a valid HTTP response (${reason}): ${advice}`
    return new ArtifactError('bad_response', message, { cause: error })
  }
  if (CERTIFICATE_CODE.test(code)) {
    const refused = `The certificate of ${server} was refused (${reason}), and nothing was sent.`
    if (!UNKNOWN_ISSUER.test(code))
      return new ArtifactError('network', `${refused} ${VALIDITY_ADVICE}`, { cause: error })
    return new ArtifactError('network', `${refused} ${ISSUER_ADVICE}`, { cause: error, next: 'Set `ca-file`' })
  }
  if (!sent && NO_TLS_CODE.test(code) && OLD_TLS.test(String((error as Error).message))) {
    const message = `${server} speaks only a version of TLS before 1.2 (${code}): enable TLS 1.2 or newer there.`
    return new ArtifactError('network', message, { cause: error })
  }
  if (!sent && NO_TLS_CODE.test(code)) {
    const message = `${server} did not complete a TLS handshake on this port (${code}): check the URL and its port, and whether the URL should be http instead of https.`
    return new TransientError('network', message, { sent, cause: error })
  }
  const failure = sent ? `The connection to ${server} broke` : `Could not connect to ${server}`
  // Many servers close a connection on which they expected a TLS handshake.
  const mayNeedTls = sent && code === 'ECONNRESET' && server.startsWith('http:')
  const advice = mayNeedTls ? `${CONNECTION_ADVICE} ${HTTPS_ADVICE}` : CONNECTION_ADVICE
  return new TransientError('network', `${failure} (${reason}): ${advice}`, {
    sent,
    cause: error,
  })
}

/** Advice for a server that cannot be reached. */
export const CONNECTION_ADVICE = 'check the URL, the network and any proxy.'

const HTTPS_ADVICE = 'If this port expects https, the URL must begin with https instead of http.'

/** What OpenSSL says of a server that knows no version of TLS that Node.js accepts. */
const OLD_TLS = /unsupported protocol|alert protocol version/
const NO_TLS_CODE = /^EPROTO$|^ERR_SSL_/
/** A code that begins with ERR_SSL_ is about another fault, for example a server that requires a client certificate. */
const CERTIFICATE_CODE =
  /^(?!ERR_SSL_).*(?:CERT|LEAF_SIGNATURE|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE|PATH_LENGTH)/
/** The certificate errors that another authority in ca-file could fix. */
const UNKNOWN_ISSUER = /SELF_SIGNED|UNABLE_TO_(?:GET_ISSUER|VERIFY)|CERT_UNTRUSTED/

/** Advice for a certificate that no known authority vouches for. */
export const ISSUER_ADVICE = 'If a private authority issued the certificate, add that authority to ca-file.'
const VALIDITY_ADVICE = "Check the host name in the URL, this host's clock, and the certificate's dates."

/** Advice in Node's message for people who start Node themselves; an operator of this action does not. */
const NODE_HINT = /; if the root CA is installed locally, try running Node\.js with --use-system-ca/

const NO_REASON = 'no reason given'

/** Quotes only the code, and the status with which the operator's own proxy refused the connection. */
function foreignReason(error: unknown, code: string): string {
  const status = code === 'ERR_PROXY_TUNNEL' ? (error as { statusCode?: unknown }).statusCode : undefined
  return typeof status === 'number' ? `${code}: the proxy answered HTTP ${status}` : code || NO_REASON
}

function reasonOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return reasonOf(error.errors[0])
  const message = error instanceof Error ? error.message : String(error)
  const known = message.replace(NODE_HINT, '')
  return cleanForeignText(known === '' ? (errnoOf(error) ?? NO_REASON) : known, 200)
}

export type Headers = Record<string, string>

/**
 * Returns the headers under lower-case names. Throws ConfigError `invalid_input` for a name or value that a header
 * cannot carry, such as a secret with a line break. The message names the header, never its value.
 */
export function readRequestHeaders(headers: Headers | undefined): Headers {
  return Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) => [checkedName(name, value), value]))
}

function checkedName(name: string, value: string): string {
  try {
    validateHeaderName(name)
    validateHeaderValue(name, value)
    return name.toLowerCase()
  } catch {
    throw new ConfigError(
      'invalid_input',
      `The value for the header "${cleanForeignText(name, 60)}" contains a character that a header cannot carry: look for a line break or another stray character in the input that has this value.`,
    )
  }
}

/**
 * Returns an answer's headers under lower-case names. The values of a repeated header are joined with `, `, so that a
 * signature header that was sent twice never passes for one of the two. Of a few headers, such as `location`, Node
 * keeps only the first value.
 */
function readResponseHeaders(headers: IncomingHttpHeaders): Headers {
  const entries = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, [value].flat().join(', ')]],
  )
  return Object.fromEntries(entries)
}

/**
 * Creates the agent for one request, which connects directly or through the proxy. The agent verifies every
 * certificate, including that of an https proxy, and `signal` interrupts a proxy that stalls. Throws TypeError if the
 * agent has no options to carry these settings, rather than connect without them.
 */
function createAgent(
  url: URL,
  { trust, signal, proxy }: Pick<WireSettings, 'trust' | 'signal'> & { proxy: HttpProxy | undefined },
): Agent {
  const agent = agentThrough(proxy, url)
  const settings = proxy === undefined ? agent.options : agent.options?.proxy
  const { request } = agent
  if (agent.options === undefined || settings === undefined)
    throw new TypeError('Expected an HTTP agent with options, found one without.')
  Object.assign(agent.options, trust)
  if (proxy === undefined) return agent
  if (request === undefined) throw new TypeError('Expected an agent that asks the proxy itself, found another.')
  Object.assign(settings, trust, { signal, host: proxy.host, port: proxy.port })
  const credentials = proxy.authorization === undefined ? {} : { 'proxy-authorization': proxy.authorization }
  agent.request = options => request({ ...options, headers: { ...options.headers, ...credentials } })
  return agent
}

/** The agents of the HTTP client; for a proxy, one of the package `tunnel`. */
type ClientAgent = Agent & {
  options?: { proxy?: object }
  request?: (options: http.RequestOptions) => ClientRequest
}

const PROXY_VARIABLES = ['http_proxy', 'https_proxy', 'no_proxy'].flatMap(name => [name, name.toUpperCase()])

/** The HTTP client takes a proxy only from the environment, which it reads less well than `findProxy`. */
function agentThrough(proxy: HttpProxy | undefined, url: URL): ClientAgent {
  const before = PROXY_VARIABLES.map(name => [name, process.env[name]] as const)
  try {
    for (const name of PROXY_VARIABLES) delete process.env[name]
    if (proxy !== undefined) process.env[`${url.protocol.slice(0, -1)}_proxy`] = `${proxy.scheme}://proxy`
    return new HttpClient(undefined, [], { keepAlive: false }).getAgent(url.href)
  } finally {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
  }
}

/** Advice for a server that does not answer as a hub does. */
export const ANSWER_ADVICE = "check the URL, or report this to the hub's operator."

/** Builds ArtifactError `bad_response` for an answer that is not of the expected form. */
export function unusableAnswer(answer: { server: string }, expected: string, found: string): ArtifactError {
  return new ArtifactError(
    'bad_response',
    `${answer.server} answered with ${found} instead of ${expected}: ${ANSWER_ADVICE}`,
  )
}
