import http, { type ClientRequest, type IncomingMessage, type RequestOptions } from 'node:http'
import https from 'node:https'
import { HttpClient } from '@actions/http-client'
import { ConnectionWatch } from './connection-watch.ts'
import { explainFailure } from './failures.ts'
import { type Headers, readResponseHeaders } from './headers.ts'
import type { WireSettings } from './settings.ts'
import { enforceTrust } from './trust.ts'

export interface HttpRequest {
  method: 'GET' | 'POST'
  url: URL
  headers: Headers
  body: string | undefined
}

/** One answer whose head has come. Whoever got it closes it. */
export interface Exchange {
  status: number
  headers: Headers
  url: URL
  /** The body's bytes as they come; a slow reader holds the server back. Throws as `openExchange` does. */
  body: AsyncIterable<Buffer>
  /** Ends the connection, whatever of the body is still to come. */
  close: () => void
}

/**
 * Sends one request on a connection of its own and waits for the head of the answer; redirects are answers like others.
 * Throws TransientError `network` or `timeout`, ArtifactError `network` for a refused certificate and `bad_response` for what
 * is not HTTP, and the reason of `signal` once that is aborted.
 */
export async function openExchange(
  request: HttpRequest,
  settings: WireSettings,
  signal: AbortSignal,
): Promise<Exchange> {
  const watch = new ConnectionWatch(request.url.origin, settings.timeouts, signal)
  try {
    const { message } = await send(request, settings, watch)
    return {
      status: message.statusCode ?? 0,
      headers: readResponseHeaders(message.headers),
      url: request.url,
      body: watchedBody(message, request.url, watch),
      close: () => watch.close(),
    }
  } catch (error) {
    throw explained(error, request.url, watch)
  }
}

function send(request: HttpRequest, settings: WireSettings, watch: ConnectionWatch) {
  const client = new HttpClient(undefined, [], { keepAlive: false, socketTimeout: NO_TIMEOUT_OF_ITS_OWN_MS })
  const secure = request.url.protocol === 'https:'
  const options = {
    host: request.url.hostname.replace(/^\[|\]$/g, ''),
    port: request.url.port === '' ? (secure ? 443 : 80) : Number(request.url.port),
    path: request.url.pathname + request.url.search,
    method: request.method,
    headers: { ...request.headers, connection: 'close' },
    agent: enforceTrust(client.getAgent(request.url.href), settings.trust, watch.signal),
    signal: watch.signal,
  }
  const httpModule = watchedModule(secure ? https : http, watch)
  return client.requestRaw({ options, parsedUrl: request.url, httpModule }, request.body ?? null)
}

const NO_TIMEOUT_OF_ITS_OWN_MS = 2 ** 31 - 1

// The client keeps the request object to itself; the module that makes it is the one place to meet it, and `request` all
// that the client uses of it. Copying the whole module would load what Node.js loads lazily, its WebSocket among it.
function watchedModule(module: typeof http | typeof https, watch: ConnectionWatch): typeof http | typeof https {
  const request = (options: RequestOptions, onAnswer: (answer: IncomingMessage) => void): ClientRequest => {
    const made = module.request(options, onAnswer)
    watch.follow(made)
    return made
  }
  return Object.assign(Object.create(module), { request })
}

async function* watchedBody(message: IncomingMessage, url: URL, watch: ConnectionWatch): AsyncGenerator<Buffer> {
  try {
    watch.awaitServer()
    for await (const chunk of message) {
      watch.pause()
      yield chunk
      watch.awaitServer()
    }
  } catch (error) {
    throw explained(error, url, watch)
  }
}

function explained(error: unknown, url: URL, watch: ConnectionWatch): unknown {
  const reason = watch.signal.aborted ? watch.signal.reason : explainFailure(error, url.origin, watch.sent)
  watch.close()
  return reason
}
