import { createHmac } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
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

export interface UntrustedHub extends LoopbackServer {
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
