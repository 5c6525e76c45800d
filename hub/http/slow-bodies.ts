import type { IncomingMessage, Server, ServerResponse } from 'node:http'

const HEADERS_TIMEOUT_MS = 60_000
const GRACE_MS = 60_000
/** 128 kbit/s. */
const MIN_BYTES_PER_SECOND = 16_000
const CHECKS_PER_GRACE = 10
const REFUSAL = 'HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n'

/**
 * Ends requests whose body comes more slowly than 16 kB/s, not counting the first minute. Node.js' own limit, for the
 * whole request, would end a large upload over a slow line as well, and none would let anyone hold connections for ever.
 */
export function endSlowBodies(server: Server, graceMs = GRACE_MS): void {
  server.requestTimeout = 0
  server.headersTimeout = HEADERS_TIMEOUT_MS
  server.on('request', (request: IncomingMessage, response: ServerResponse) => watch(request, response, graceMs))
}

function watch(request: IncomingMessage, response: ServerResponse, graceMs: number): void {
  const { socket } = request
  const [startedAt, before] = [performance.now(), socket.bytesRead]
  const isTooSlow = () => {
    const seconds = (performance.now() - startedAt - graceMs) / 1000
    return socket.bytesRead - before < seconds * MIN_BYTES_PER_SECOND
  }
  const timer = setInterval(() => {
    if (request.complete || request.destroyed) clearInterval(timer)
    else if (isTooSlow()) {
      if (!response.headersSent) socket.write(REFUSAL)
      socket.destroy()
    }
  }, graceMs / CHECKS_PER_GRACE).unref()
  request.once('close', () => clearInterval(timer))
}
