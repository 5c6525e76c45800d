import type { IncomingMessage, Server, ServerResponse } from 'node:http'

/** The system reports progress only when a third of its buffer is free, so a slow connection seems to pause. */
const STALL_MS = 120_000
const CHECKS_PER_STALL = 10

/**
 * Ends answers from which the client reads nothing for `stallMs` (two minutes by default), because each of them keeps a
 * connection, and often a file, open.
 */
export function endStalledAnswers(server: Server, stallMs = STALL_MS): void {
  server.on('request', (_request: IncomingMessage, response: ServerResponse) => watch(response, stallMs))
}

function watch(response: ServerResponse, stallMs: number): void {
  let progress = { bytes: 0, at: performance.now() }
  const timer = setInterval(() => {
    const bytes = response.socket?.bytesWritten ?? 0
    if (!response.headersSent || bytes !== progress.bytes) progress = { bytes, at: performance.now() }
    else if (performance.now() - progress.at >= stallMs) response.socket?.destroy()
  }, stallMs / CHECKS_PER_STALL).unref()
  response.once('close', () => clearInterval(timer))
}
