import http, { type ClientRequest, type IncomingMessage } from 'node:http'
import https from 'node:https'
import { createAgent } from './agent.ts'
import { ConnectionWatch } from './connection-watch.ts'
import { type Headers, readResponseHeaders } from './headers.ts'
import type { WireSettings } from './settings.ts'
import { unusableAnswer } from './unusable-answer.ts'

export interface HttpRequest {
  method: 'GET' | 'POST'
  url: URL
  headers: Headers
  body: string | undefined
}

/** An answer whose head has arrived. Its receiver must close it. */
export interface Exchange {
  status: number
  headers: Headers
  url: URL
  /** The body's bytes as they arrive; a slow reader slows the server down. Throws as `openExchange` does. */
  body: AsyncIterable<Buffer>
  /** Ends the connection, even when part of the body is still to come. */
  close: () => void
}

/**
 * Sends one request on a connection of its own and waits for the head of the answer; a redirect is an answer as well.
 * Throws TransientError `network` or `timeout`, ArtifactError `network` for a refused certificate and `bad_response`
 * for an answer that is not HTTP or is HTTP 101, and the reason of the settings' signal once that is aborted.
 */
export async function openExchange(request: HttpRequest, settings: WireSettings): Promise<Exchange> {
  const watch = new ConnectionWatch(request.url.origin, settings)
  try {
    const sent = startRequest(request, { ...settings, signal: watch.signal })
    watch.follow(sent)
    const answer = await receiveHead(sent.end(request.body), request)
    return {
      status: answer.statusCode ?? 0,
      headers: readResponseHeaders(answer.headers),
      url: request.url,
      body: receiveBody(answer, watch),
      close: () => watch.close(),
    }
  } catch (error) {
    throw watch.endWith(error)
  }
}

function startRequest({ url, method, headers }: HttpRequest, settings: WireSettings): ClientRequest {
  const { request } = url.protocol === 'https:' ? https : http
  return request(url, {
    method,
    headers: { ...headers, connection: 'close' },
    agent: createAgent(url, settings),
    signal: settings.signal,
  })
}

/** Settles whenever the request ends, also when the server switches to another protocol or closes without an error. */
function receiveHead(sent: ClientRequest, request: HttpRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const refuse = () => reject(unusableAnswer(request, 'an HTTP answer', 'HTTP 101 (a switch to another protocol)'))
    sent.on('response', answer => (answer.statusCode === 101 ? refuse() : resolve(answer)))
    sent.on('upgrade', (_, socket) => {
      socket.destroy()
      refuse()
    })
    // It stays after the answer has begun: the request may still fail, and the body reports that.
    sent.on('error', reject)
    sent.on('close', () => reject(new Error('closed without an answer')))
  })
}

async function* receiveBody(answer: IncomingMessage, watch: ConnectionWatch): AsyncGenerator<Buffer> {
  try {
    watch.awaitServer()
    for await (const chunk of answer) {
      watch.pause()
      yield chunk
      watch.awaitServer()
    }
  } catch (error) {
    throw watch.endWith(error)
  }
}
