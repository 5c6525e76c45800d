import { createServer } from 'node:net'

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
