import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { isIPv6 } from 'node:net'
import { createAdaptorServer } from '@hono/node-server'
import { ensureAdminToken, setAdminToken } from './admin-token.ts'
import { buildApp } from './app.ts'
import { isLoopbackHost } from './loopback.ts'
import { openStore, type Store } from './store.ts'

const CLOSE_GRACE_MS = 3_000
const IDLE_SWEEP_MS = 50

export interface HubOptions {
  dataDir: string
  /** 0, the default, takes any free port. */
  port?: number
  /** 127.0.0.1 unless given. */
  host?: string
  /** Replaces the data folder's admin token; without it the one there is kept, or a random one is made. */
  adminToken?: string
  /** Takes one line about each request that failed inside the hub; standard error unless given. */
  log?: (line: string) => void
  /** Milliseconds since 1970, by which access tokens expire; the machine's clock unless given. */
  now?: () => number
}

/** Where the hub listens. */
export interface ListenAddress {
  readonly host: string
  readonly port: number
}

export interface RunningHub {
  /** Without a slash at the end. */
  readonly url: string
  /** Undefined when the data folder has an admin token already: only its hash is kept. */
  readonly adminToken: string | undefined
  /** Stops listening, gives the requests in flight 3 s, and closes the data folder. */
  close(): Promise<void>
}

/** Serves the data folder until it is closed. Throws what listening throws, and what openStore and setAdminToken throw. */
export async function startHub(options: HubOptions): Promise<RunningHub> {
  const { host = '127.0.0.1', port = 0, log = console.error, now = Date.now } = options
  const store = openStore(options.dataDir)
  try {
    const adminToken = prepareAdminToken(store, options.adminToken)
    const app = buildApp({ store, isLocal: isLoopbackHost(host), now, log })
    const server = createAdaptorServer({ fetch: app.fetch }) as Server
    await listen(server, { host, port })
    let stopped: Promise<void> | undefined
    return { url: urlOf(server, host), adminToken, close: () => (stopped ??= stop(server, store)) }
  } catch (error) {
    store.close()
    throw error
  }
}

function prepareAdminToken(store: Store, given: string | undefined): string | undefined {
  if (given === undefined) return ensureAdminToken(store)
  setAdminToken(store, given)
  return given
}

async function listen(server: Server, address: ListenAddress): Promise<void> {
  server.listen(address)
  await once(server, 'listening')
}

function urlOf(server: Server, host: string): string {
  const { port } = server.address() as AddressInfo
  return `http://${isIPv6(host) ? `[${host}]` : host}:${port}`
}

/** A connection whose last answer ends after `close` was called stays open, idle, unless it is closed as well. */
async function stop(server: Server, store: Store): Promise<void> {
  const closed = once(server, 'close')
  server.close()
  const sweep = setInterval(() => server.closeIdleConnections(), IDLE_SWEEP_MS)
  const grace = setTimeout(() => server.closeAllConnections(), CLOSE_GRACE_MS)
  await closed
  clearInterval(sweep)
  clearTimeout(grace)
  store.close()
}
