import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { TestContext } from 'node:test'
import { type LoopbackServer, serve } from '../../net/loopback-server.ts'

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

function routeOf({ method, url = '' }: IncomingMessage): Route {
  if (method === 'POST') return 'report'
  return url.includes('/install') ? 'artifact' : 'detail'
}

function sentOn({ headers }: IncomingMessage): Record<string, string> {
  const names = ['x-api-key', 'content-type', 'accept']
  return Object.fromEntries(names.flatMap(name => (headers[name] === undefined ? [] : [[name, String(headers[name])]])))
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks)
}
