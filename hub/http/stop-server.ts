import { once } from 'node:events'
import type { Server } from 'node:http'
import type { Socket } from 'node:net'

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
