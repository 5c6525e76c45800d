import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import http from 'node:http'
import type { ServerOptions } from 'node:https'
import https from 'node:https'
import net, { type AddressInfo, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
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

export interface Certificate {
  key: string
  cert: string
}

/** A self-signed certificate for `hub.test`, `localhost` and 127.0.0.1; undefined without openssl. */
export function makeCertificate(): Certificate | undefined {
  const folder = mkdtempSync(join(tmpdir(), 'hub-deploy-test-'))
  try {
    const key = join(folder, 'key.pem')
    const cert = join(folder, 'cert.pem')
    const made = spawnSync('openssl', [...OPENSSL_ARGUMENTS, '-keyout', key, '-out', cert], { stdio: 'ignore' })
    return made.status === 0 ? { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') } : undefined
  } finally {
    rmSync(folder, { recursive: true })
  }
}

const OPENSSL_ARGUMENTS = [
  ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'],
  ...['-subj', '/CN=hub.test', '-addext', 'subjectAltName=DNS:hub.test,DNS:localhost,IP:127.0.0.1'],
]

interface ConnectProxy {
  url: string
  /** The `host:port` of every CONNECT so far, in order. */
  targets: string[]
  authorizations: (string | undefined)[]
}

/**
 * The proxy's reaction to a CONNECT. If the reaction is a function, the proxy calls the function and does not answer.
 */
type ProxyBehavior = 'works' | 'refuses' | 'wants credentials' | (() => void)

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
    else if (behavior === 'wants credentials') socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n')
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
  const names = ['http_proxy', 'https_proxy', 'all_proxy', 'no_proxy'].flatMap(name => [name, name.toUpperCase()])
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

/**
 * A port on which no server listens: the system gives out no port as low as 2. The port of a closed server would not
 * do, because another test's server may get it. `fetch` refuses port 1 without an attempt.
 */
export const CLOSED_PORT = 2

/**
 * The ports of `freePort` start here, below the ports that the system gives out, so the system gives none of them to
 * another test's server.
 */
const FIRST = 12_000
const COUNT = 20_000

/** Depends on the process, so that the processes of a test run hardly ever choose the same port. */
let next = FIRST + (process.pid % COUNT)

/**
 * Returns a free port of 127.0.0.1, for a program whose port must be known before the program starts. A process gets no
 * port twice.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = next++
    if (await isFree(port)) return port
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}
