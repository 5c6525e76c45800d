import { createServer } from 'node:net'

/**
 * No server listens there. The port of a server that was closed would not do: the system gives it to another test's
 * server. It gives out no port this low. (Not port 1: `fetch` refuses it without trying.)
 */
export const CLOSED_PORT = 2

/** Below the ports that the system gives out, so that no other server gets one before a program listens on it. */
const FIRST = 12_000
const COUNT = 20_000

/** Different for the processes of a test run. */
let next = FIRST + (process.pid % COUNT)

/** Returns a port of 127.0.0.1 for a program that needs to know it before it starts; each one once. */
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
