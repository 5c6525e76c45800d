import http, { type IncomingMessage, type ServerResponse } from 'node:http'
import https, { type ServerOptions } from 'node:https'
import net, { type AddressInfo, type Socket } from 'node:net'
import type { TestContext } from 'node:test'

export interface LoopbackServer {
  /** Without a slash at the end. */
  url: string
  port: number
  /** Every request so far, in order. */
  requests: IncomingMessage[]
  /** The number of connections so far. */
  connections: () => number
}

export type Handler = (request: IncomingMessage, response: ServerResponse, nth: number) => void

/** An HTTP server on 127.0.0.1. When the test ends, the server closes every connection and stops. */
export function serve(t: TestContext, handler: Handler): Promise<LoopbackServer> {
  const requests: IncomingMessage[] = []
  return listen(t, http.createServer(recording(requests, handler)), 'http', requests)
}

/** Does the same as `serve`, with TLS. */
export function serveTls(t: TestContext, options: ServerOptions, handler: Handler): Promise<LoopbackServer> {
  const requests: IncomingMessage[] = []
  return listen(t, https.createServer(options, recording(requests, handler)), 'https', requests)
}

/** A TCP server, for answers that no HTTP server would send. */
export function serveSocket(t: TestContext, onSocket: (socket: Socket, nth: number) => void): Promise<LoopbackServer> {
  let nth = 0
  return listen(
    t,
    net.createServer(socket =>
      onSocket(
        socket.on('error', () => {}),
        ++nth,
      ),
    ),
    'http',
    [],
  )
}

/** Writes the head, then one byte every `everyMs` milliseconds until the socket is closed. */
export function drip(socket: Socket, head: string, everyMs: number): void {
  socket.write(head)
  const timer = setInterval(() => socket.write('x'), everyMs)
  socket.on('close', () => clearInterval(timer))
}

function recording(requests: IncomingMessage[], handler: Handler) {
  return (request: IncomingMessage, response: ServerResponse): void => {
    requests.push(request)
    handler(request, response, requests.length)
  }
}

async function listen(
  t: TestContext,
  server: net.Server,
  scheme: string,
  requests: IncomingMessage[],
): Promise<LoopbackServer> {
  const sockets = new Set<Socket>()
  let connections = 0
  server.on('connection', (socket: Socket) => {
    connections++
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.after(async () => {
    for (const socket of sockets) socket.destroy()
    await new Promise(resolve => server.close(resolve))
  })
  const { port } = server.address() as AddressInfo
  return { url: `${scheme}://127.0.0.1:${port}`, port, requests, connections: () => connections }
}
