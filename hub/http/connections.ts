import { once } from 'node:events'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { BlockList, isIP, type Socket } from 'node:net'

const HEADERS_TIMEOUT_MS = 60_000
const MINUTE_MS = 60_000
/** 128 kbit/s. */
const MIN_BYTES_A_MINUTE = 60 * 16_000
const REFUSAL = 'HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n'

/** Runs the work every minute until the returned function is called. */
export type EveryMinute = (work: () => void) => () => void

/**
 * Ends a request if less than 960 kB (16 kB/s) of its body arrived in any minute after the first. Only the route for
 * uploads reads more than 1 MiB, so any other body can take at most three minutes. Node.js' own limit applies to the
 * whole request, so it would also end a large upload over a slow connection. Without any limit, anyone could hold
 * connections forever.
 */
export function endSlowBodies(server: Server, everyMinute: EveryMinute = everyRealMinute): void {
  server.requestTimeout = 0
  server.headersTimeout = HEADERS_TIMEOUT_MS
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    watchBody(request, response, everyMinute)
  })
}

function watchBody(request: IncomingMessage, response: ServerResponse, everyMinute: EveryMinute): void {
  const bytesSoFar = countBody(request)
  let [minutes, before] = [0, 0]
  const stop = everyMinute(() => {
    const came = bytesSoFar() - before
    before += came
    minutes += 1
    if (request.complete || request.destroyed) stop()
    else if (minutes > 1 && came < MIN_BYTES_A_MINUTE) end(request, response)
  })
  request.once('close', stop)
}

/** Counts only the bytes of the body, because a client can send endless framing, in HTTP and in TLS, without a body. */
function countBody(request: IncomingMessage): () => number {
  let bytes = 0
  const push = request.push
  request.push = (chunk, ...more) => {
    bytes += chunk?.length ?? 0
    return push.call(request, chunk, ...more)
  }
  return () => bytes
}

function end({ socket }: IncomingMessage, response: ServerResponse): void {
  if (!response.headersSent) socket.write(REFUSAL)
  socket.destroy()
}

function everyRealMinute(work: () => void): () => void {
  const timer = setInterval(work, MINUTE_MS).unref()
  return () => clearInterval(timer)
}

/** The system reports progress only when a third of its buffer is free, so a slow connection seems to pause. */
const STALL_MS = 120_000
const CHECKS_PER_STALL = 10

/**
 * Ends answers from which the client reads nothing for `stallMs` (two minutes by default), because each of them keeps a
 * connection, and often a file, open.
 */
export function endStalledAnswers(server: Server, stallMs = STALL_MS): void {
  server.on('request', (_request: IncomingMessage, response: ServerResponse) => watchAnswer(response, stallMs))
}

function watchAnswer(response: ServerResponse, stallMs: number): void {
  let progress = { bytes: 0, at: performance.now() }
  const timer = setInterval(() => {
    const bytes = response.socket?.bytesWritten ?? 0
    if (!response.headersSent || bytes !== progress.bytes) progress = { bytes, at: performance.now() }
    else if (performance.now() - progress.at >= stallMs) response.socket?.destroy()
  }, stallMs / CHECKS_PER_STALL).unref()
  response.once('close', () => clearInterval(timer))
}

const CLOSE_GRACE_MS = 3_000
const IDLE_SWEEP_MS = 50

/**
 * Returns a function that stops the server: the server then accepts no more connections, and requests in flight have
 * 3 s to end. Call prepareStop before the server listens, because the server itself knows a TLS connection only after
 * its handshake.
 */
export function prepareStop(server: Server): () => Promise<void> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  return () => stop(server, sockets)
}

/** Also closes connections that become idle after the call to `server.close`: that call misses them. */
async function stop(server: Server, sockets: ReadonlySet<Socket>): Promise<void> {
  const closed = once(server, 'close')
  server.close()
  const sweep = setInterval(() => server.closeIdleConnections(), IDLE_SWEEP_MS)
  const grace = setTimeout(() => {
    for (const socket of sockets) socket.destroy()
  }, CLOSE_GRACE_MS)
  await closed
  clearInterval(sweep)
  clearTimeout(grace)
}

const loopback = new BlockList()
loopback.addSubnet('127.0.0.0', 8, 'ipv4')
loopback.addAddress('::1', 'ipv6')

/** True if a name or address always means this machine. */
export function isLoopbackHost(host: string): boolean {
  const version = isIP(host)
  if (version === 0) return host.toLowerCase() === 'localhost'
  return loopback.check(host, version === 4 ? 'ipv4' : 'ipv6')
}

/**
 * Works like isLoopbackHost, but for a Host header. An IPv6 address is in brackets there, and a port may follow the
 * host.
 */
export function isLoopbackAuthority(authority: string | undefined): boolean {
  const [, bracketed, plain] = /^(?:\[([^\]]*)\]|([^:]*))(?::\d+)?$/.exec(authority ?? '') ?? []
  return isLoopbackHost(bracketed ?? plain ?? '')
}
