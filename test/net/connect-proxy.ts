import http from 'node:http'
import https from 'node:https'
import net, { type AddressInfo, type Socket } from 'node:net'
import type { TestContext } from 'node:test'
import type { Certificate } from './certificates.ts'

export interface ConnectProxy {
  url: string
  /** The `host:port` of every CONNECT so far, in order. */
  targets: string[]
  authorizations: (string | undefined)[]
}

/**
 * The proxy's reaction to a CONNECT. If the reaction is a function, the proxy calls the function and does not answer.
 */
export type ProxyBehavior = 'works' | 'refuses' | (() => void)

/** A CONNECT proxy on loopback that resolves every host name to 127.0.0.1. With a certificate, it speaks TLS itself. */
export async function startConnectProxy(
  t: TestContext,
  behavior: ProxyBehavior = 'works',
  certificate?: Certificate,
): Promise<ConnectProxy> {
  const targets: string[] = []
  const authorizations: (string | undefined)[] = []
  const sockets = new Set<Socket>()
  const server = certificate === undefined ? http.createServer() : https.createServer(certificate)
  server.on('connection', socket => sockets.add(socket))
  server.on('connect', (request, socket: Socket) => {
    targets.push(request.url ?? '')
    authorizations.push(request.headers['proxy-authorization'])
    socket.on('error', () => {})
    if (typeof behavior === 'function') behavior()
    else if (behavior === 'refuses') socket.end('HTTP/1.1 403 Forbidden\r\n\r\n')
    else sockets.add(joinSockets(socket, Number(new URL(`http://${request.url}`).port || 80)))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.after(async () => {
    for (const socket of sockets) socket.destroy()
    await new Promise(resolve => server.close(resolve))
  })
  const scheme = certificate === undefined ? 'http' : 'https'
  return { url: `${scheme}://127.0.0.1:${(server.address() as AddressInfo).port}`, targets, authorizations }
}

/** Sets these proxy variables for the rest of the test, and unsets all other proxy variables. */
export function useProxyEnvironment(t: TestContext, variables: Record<string, string>): void {
  const names = ['http_proxy', 'https_proxy', 'no_proxy', 'HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY']
  const before = names.map(name => [name, process.env[name]] as const)
  for (const name of names) delete process.env[name]
  Object.assign(process.env, variables)
  t.after(() => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
  })
}

function joinSockets(client: Socket, port: number): Socket {
  const upstream = net.connect(port, '127.0.0.1', () => {
    client.write('HTTP/1.1 200 Connection established\r\n\r\n')
    client.pipe(upstream).pipe(client)
  })
  upstream.on('error', () => client.destroy())
  client.on('close', () => upstream.destroy())
  return upstream
}
