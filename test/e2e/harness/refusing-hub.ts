import { createServer, type IncomingMessage } from 'node:http'
import { buffer } from 'node:stream/consumers'

export interface RefusingHub {
  readonly url: string
  close(): Promise<void>
}

/** Opens a proxy to a real hub. The proxy refuses the reports of projects, and passes on everything else. */
export async function openRefusingHub(hubUrl: string): Promise<RefusingHub> {
  const server = createServer(async (request, response) => {
    const { method = 'GET', url = '' } = request
    if (url === '/v1/deployments/report') {
      response.writeHead(403, { 'content-type': 'application/json' }).end('{"error":"this key may not report"}')
      return
    }
    const body = method === 'POST' ? await buffer(request) : null
    const answer = await fetch(`${hubUrl}${url}`, { method, headers: sentOn(request), body })
    response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(Buffer.from(await answer.arrayBuffer()))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  return {
    url: `http://127.0.0.1:${port}`,
    async close() {
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    },
  }
}

function sentOn({ headers }: IncomingMessage): Record<string, string> {
  const names = ['authorization', 'content-type', 'accept']
  return Object.fromEntries(names.flatMap(name => (headers[name] === undefined ? [] : [[name, String(headers[name])]])))
}
