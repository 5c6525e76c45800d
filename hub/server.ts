import { once } from 'node:events'
import { createServer } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { isIPv6 } from 'node:net'
import { getRequestListener, RequestError } from '@hono/node-server'
import { ensureAdminToken, setAdminToken } from './admin-token.ts'
import { errorBody } from './errors.ts'
import { buildApp } from './http/app.ts'
import { isLoopbackHost } from './http/loopback.ts'
import { type EveryMinute, endSlowBodies } from './http/slow-bodies.ts'
import { endStalledAnswers } from './http/stalled-answers.ts'
import { prepareStop } from './http/stop-server.ts'
import { catchUpWithReports } from './marketplace/fleet.ts'
import { type FreeBytes, freeBytesOf } from './project/publishing/disk-space.ts'
import { removeLeftUploads } from './project/publishing/upload-folder.ts'
import { openStore, type Store } from './store.ts'
import type { TlsCredentials } from './tls-files.ts'

const MAX_ARTIFACT_BYTES = 512 * 1024 * 1024
const RESERVE_BYTES = 256 * 1024 * 1024

export interface HubOptions {
  dataDir: string
  /** Default: 0, which means any free port. */
  port?: number
  /** Default: 127.0.0.1. */
  host?: string
  /** The certificate and key for HTTPS. Default: plain HTTP. */
  tls?: TlsCredentials
  /** True if a proxy forwards requests from other machines, so that a loopback address does not mean this machine. */
  behindProxy?: boolean
  /** Replaces the admin token. Default: keeps the one in the data folder, or creates a random one. */
  adminToken?: string
  /** Receives one line for each internal error, and for old uploads that cannot be removed. Default: standard error. */
  log?: (line: string) => void
  /** The limit for a sealed file. Default: 512 MiB. */
  maxArtifactBytes?: number
  /** The bytes that an upload leaves free on the disk. Default: 256 MiB. */
  reserveBytes?: number
  /** Returns the free bytes on the disk of a folder. Default: the system's answer. */
  freeBytes?: FreeBytes
  /**
   * Decides when to check that the body of a request arrives fast enough. Default: every minute of the machine's clock.
   */
  everyMinute?: EveryMinute
  /** The time after which an answer ends if the client reads nothing from it. Default: two minutes. */
  stallMs?: number
  /** Milliseconds since 1970. Decides when access tokens and download URLs expire. Default: the machine's clock. */
  now?: () => number
}

/** The address on which the hub listens. */
export interface ListenAddress {
  readonly host: string
  readonly port: number
}

export interface RunningHub {
  /** Without a slash at the end. */
  readonly url: string
  /** Undefined if the hub keeps the admin token that the data folder already had: only that token's hash is stored. */
  readonly adminToken: string | undefined
  /** Uses these credentials for new connections. Throws if the hub speaks plain HTTP. */
  renewTls(tls: TlsCredentials): void
  /** Stops listening, gives requests in flight 3 s to finish, and closes the data folder. */
  close(): Promise<void>
}

/** Serves the data folder until `close`. Throws if the hub cannot listen, and as openStore and setAdminToken do. */
export async function startHub(options: HubOptions): Promise<RunningHub> {
  const {
    host = '127.0.0.1',
    port = 0,
    log = console.error,
    now = Date.now,
    maxArtifactBytes = MAX_ARTIFACT_BYTES,
    reserveBytes = RESERVE_BYTES,
    freeBytes = freeBytesOf,
  } = options
  const store = openStore(options.dataDir)
  try {
    catchUpWithReports(store)
    await removeLeftUploads(store.dataDir, log)
    const adminToken = prepareAdminToken(store, options.adminToken)
    const isLocal = isLoopbackHost(host) && options.behindProxy !== true
    const disk = { folder: store.dataDir, reserveBytes, freeBytes }
    const app = buildApp({ store, isLocal, maxArtifactBytes, disk, now, log })
    const answer = getRequestListener(app.fetch, { errorHandler: refuseRequest })
    const server = options.tls === undefined ? createServer(answer) : createTlsServer(options.tls, answer)
    const stop = prepareStop(server)
    endSlowBodies(server, options.everyMinute)
    endStalledAnswers(server, options.stallMs)
    await listen(server, { host, port })
    let stopped: Promise<void> | undefined
    return {
      url: urlOf(server, host),
      adminToken,
      renewTls: tls => asTlsServer(server).setSecureContext(tls),
      close: () => (stopped ??= stop().then(() => store.close())),
    }
  } catch (error) {
    store.close()
    throw error
  }
}

type Server = ReturnType<typeof createServer> | TlsServer
type TlsServer = ReturnType<typeof createTlsServer>

function isTlsServer(server: Server): server is TlsServer {
  return 'setSecureContext' in server
}

function asTlsServer(server: Server): TlsServer {
  if (isTlsServer(server)) return server
  throw new Error('This hub speaks plain HTTP.')
}

/** Answers requests that no route sees, usually because no URL can be built from them. */
function refuseRequest(error: unknown): Response {
  const [status, message] =
    error instanceof RequestError
      ? [400, 'The hub cannot read the request: correct its URL and its Host header.']
      : [500, 'The hub has an internal error.']
  return Response.json(errorBody(message), { status, headers: { 'X-Content-Type-Options': 'nosniff' } })
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
  return `${isTlsServer(server) ? 'https' : 'http'}://${isIPv6(host) ? `[${host}]` : host}:${port}`
}
