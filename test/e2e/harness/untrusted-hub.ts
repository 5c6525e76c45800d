import { createHmac } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { TestContext } from 'node:test'
import { buildZip, file, type ZipItem } from '../../archives/zip-builder.ts'
import { type LoopbackServer, serve } from '../../net/loopback-server.ts'
import { SIGNING_SECRET } from './stage.ts'

export type Answer = (response: ServerResponse, request: IncomingMessage) => void

/** The answers of a hub on its three routes. Each default is honest. */
export interface Answers {
  detail: Answer
  artifact: Answer
  report: Answer
}

interface UntrustedHub extends LoopbackServer {
  /** The bodies of the reports that the hub has received. */
  reports: unknown[]
  /** The requests so far for this route. */
  requestsFor(route: keyof Answers): IncomingMessage[]
}

export const VERSION = '2.0.0'

/** The ZIP of a plugin of this version. */
export function pluginZip(version: string = VERSION, more: ZipItem[] = []): Buffer {
  return buildZip([file('plugin.yaml', `name: greeter\nversion: "${version}"\n`), file('src/main.py'), ...more])
}

export function signatureOf(bytes: Uint8Array, secret: string = SIGNING_SECRET): string {
  return `hmac_sha256:${createHmac('sha256', secret).update(bytes).digest('hex')}`
}

/** An answer with the artifact, its signature and these headers; undefined removes a header. */
export function serveArtifact(bytes: Buffer, headers: Record<string, string | undefined> = {}): Answer {
  const all = { 'content-type': 'application/zip', 'x-signature': signatureOf(bytes), ...headers }
  const sent = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined))
  return response => response.writeHead(200, sent as Record<string, string>).end(bytes)
}

export function answerJson(status: number, body: unknown): Answer {
  return response => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

export function redirectTo(location: string, status = 302): Answer {
  return response => response.writeHead(status, { location }).end()
}

/** Leaves HTTP for another protocol, as a misconfigured proxy may. */
export const switchProtocols: Answer = response =>
  response.socket?.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n')

/** Serves a marketplace hub on loopback with these answers. The hub closes when the test ends. */
export async function serveUntrustedHub(t: TestContext, answers: Partial<Answers> = {}): Promise<UntrustedHub> {
  const all: Answers = {
    detail: answerJson(200, { latest_version: VERSION }),
    artifact: serveArtifact(pluginZip()),
    report: answerJson(201, {}),
    ...answers,
  }
  const reports: unknown[] = []
  const server = await serve(t, async (request, response) => {
    const route = routeOf(request)
    if (route === 'report') reports.push(await readJson(request))
    all[route](response, request)
  })
  const requestsFor = (route: keyof Answers) => server.requests.filter(request => routeOf(request) === route)
  return { ...server, reports, requestsFor }
}

function routeOf({ method, url = '' }: IncomingMessage): keyof Answers {
  if (method === 'POST') return 'report'
  return url.includes('/install') ? 'artifact' : 'detail'
}

async function readJson(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  return JSON.parse(Buffer.concat(chunks).toString())
}

export type Route = 'detail' | 'artifact' | 'report'

/**
 * Opens a gate: a proxy to a real hub. The gate waits for the result of `onRequest` before it passes a request on. If
 * the result is `fail`, the gate answers 500. As long as there is no result, the request gets no answer. The gate
 * closes when the test ends, even if requests are still waiting.
 */
export function openGate(
  t: TestContext,
  hubUrl: string,
  onRequest: (route: Route) => undefined | 'fail' | void | Promise<void>,
): Promise<LoopbackServer> {
  return serve(t, async (request, response) => {
    if ((await onRequest(routeOf(request))) === 'fail') {
      response.writeHead(500).end('{"error": "out of order"}')
      return
    }
    const body = request.method === 'POST' ? await readBody(request) : null
    const answer = await fetch(`${hubUrl}${request.url}`, {
      method: request.method ?? 'GET',
      headers: sentOn(request),
      body,
    })
    response.writeHead(answer.status, Object.fromEntries(answer.headers))
    if (answer.body === null) response.end()
    else await pipeline(Readable.fromWeb(answer.body), response).catch(() => {})
  })
}

/** Never resolves, and does not keep the process alive. */
export const forEver = (): Promise<never> => new Promise(() => {})

function sentOn({ headers }: IncomingMessage): Record<string, string> {
  const names = ['x-api-key', 'content-type', 'accept']
  return Object.fromEntries(names.flatMap(name => (headers[name] === undefined ? [] : [[name, String(headers[name])]])))
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks)
}

/** A hub that sends its artifacts only once they are released. */
export interface SlowHub {
  readonly url: string
  /** Resolves once a run waits for an artifact. */
  readonly asked: Promise<void>
  letGo(): void
}

/**
 * Opens a proxy to a real hub. The proxy holds back artifacts until `letGo` is called. All other answers pass at once.
 */
export async function openSlowHub(t: TestContext, hubUrl: string): Promise<SlowHub> {
  const asked = Promise.withResolvers<void>()
  const released = Promise.withResolvers<void>()
  const { url } = await openGate(t, hubUrl, async route => {
    if (route !== 'artifact') return
    asked.resolve()
    await released.promise
  })
  return { url, asked: asked.promise, letGo: released.resolve }
}
