import type { IncomingMessage, Server, ServerResponse } from 'node:http'

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
    watch(request, response, everyMinute)
  })
}

function watch(request: IncomingMessage, response: ServerResponse, everyMinute: EveryMinute): void {
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
