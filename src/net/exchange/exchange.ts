import http, { type Agent, type ClientRequest, type IncomingMessage } from 'node:http'
import https from 'node:https'
import type { LookupFunction } from 'node:net'
import { weighOnHeap } from '../../core/chunk-weight.ts'
import type { WireSettings } from '../settings.ts'
import { createAgent } from './agent.ts'
import { ConnectionWatch } from './connection-watch.ts'
import { type Headers, readResponseHeaders } from './headers.ts'
import { unusableAnswer } from './unusable-answer.ts'

export interface HttpRequest {
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
  /** The body's bytes as they arrive; a slow reader slows the server down. Throws as `openExchange` does. */
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
  const watch = new ConnectionWatch({ server: request.server, foreign: isForeign(request) }, settings)
  try {
    const { signal } = watch
    const route = await findRoute(request, { ...settings, signal })
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
    throw watch.endWith(error)
  }
}

function isForeign({ url, hub }: HttpRequest): boolean {
  return url.origin !== hub.origin
}

interface Route {
  readonly agent: Agent
  readonly lookup: LookupFunction
}

async function findRoute(request: HttpRequest, settings: WireSettings): Promise<Route> {
  const { agent, isProxied } = createAgent(request.url, settings)
  return { agent, lookup: await lookupFor(request, { ...settings, isProxied }) }
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
