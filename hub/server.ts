import { once } from 'node:events'
import { createServer } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, isIPv6 } from 'node:net'
import { getRequestListener, RequestError } from '@hono/node-server'
import { type Context, Hono } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import { except } from 'hono/combine'
import { methodNotAllowed } from 'hono/method-not-allowed'
import { ensureAdminToken, requireAdminToLook, setAdminToken } from './access.ts'
import { errorBody, HubError } from './errors.ts'
import {
  type EveryMinute,
  endSlowBodies,
  endStalledAnswers,
  isLoopbackAuthority,
  isLoopbackHost,
  prepareStop,
} from './http/connections.ts'
import type { TlsCredentials } from './http/tls.ts'
import { type FreeBytes, freeBytesOf, type PublishContext, removeLeftUploads } from './http/uploads.ts'
import { listCatalogue } from './marketplace/catalogue.ts'
import { catchUpWithReports, readFleet } from './marketplace/fleet.ts'
import { catalogueRoutes, deploymentRoutes, keyRoutes, marketplaceRoutes } from './marketplace/routes.ts'
import { buildFleetPage, FLEET_PAGE_POLICY } from './page/fleet-page.ts'
import { parseFleetFilter } from './page/fleet-section.ts'
import { listProjects } from './project/catalogue.ts'
import { PUBLISH_PATH, publishRoutes } from './project/publishing/publish-route.ts'
import { listDeployments, readProjectState } from './project/reports.ts'
import { projectAdminRoutes, projectRoutes } from './project/routes.ts'
import { openStore, type Store } from './store.ts'

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
  /** The limit for an uploaded file. Default: 512 MiB. */
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

const MAX_BODY_BYTES = 1024 * 1024
const DEPLOYMENTS_SHOWN = 20
const PROXY_HEADERS = ['forwarded', 'via', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'x-real-ip']
const PLUGINS_MOUNT = '/app/marketplace'
const SERVICES_MOUNT = '/app/xservices'
const PROJECTS_MOUNT = '/app/xdeploy'
/** The routes that limit their bodies themselves. */
const UPLOAD_PATHS = [
  ...['', PLUGINS_MOUNT].map(mount => `${mount}/plugins/:slug/publish`),
  ...['', SERVICES_MOUNT].map(mount => `${mount}/services/:slug/publish`),
  ...['', PROJECTS_MOUNT].map(mount => `${mount}${PUBLISH_PATH}`),
]

interface AppOptions extends PublishContext {
  /** True if only this machine can reach the hub. */
  readonly isLocal: boolean
  /** Milliseconds since 1970. Decides when access tokens and download URLs expire. */
  readonly now: () => number
  /** Receives one line for each internal error; the client learns only that an error occurred. */
  readonly log: (line: string) => void
}

/**
 * Builds all routes of the hub. Every refusal and failure is JSON with `error` and `detail`, and never shows a stack
 * trace.
 */
function buildApp(options: AppOptions): Hono {
  const app = new Hono()
  app.use(protectAnswer)
  app.use(refuseUnreadableUrl)
  app.use(
    methodNotAllowed({
      app,
      onMethodNotAllowed: (c, methods) =>
        c.json(errorBody(`This route does not support ${c.req.method}.`), 405, { Allow: methods.join(', ') }),
    }),
  )
  app.use(except(UPLOAD_PATHS, bodyLimit({ maxSize: MAX_BODY_BYTES, onError: refuseBody })))
  app.get('/', c => answerFleetPage(c, options))
  app.get('/healthz', c => answerHealth(c, options.store))
  mountRoutes(app, options)
  app.notFound(c => c.json(errorBody('This route does not exist.'), 404))
  app.onError((error, c) => answerError(c, error, options.log))
  return app
}

/**
 * Mounts all routes at the root, and each contract's parts below the prefixes that hubs with several services use
 * (docs/contracts.md).
 */
function mountRoutes(app: Hono, options: AppOptions): void {
  const projects = new Hono()
  projects.route('/', projectRoutes(options))
  projects.route('/', publishRoutes(options))
  projects.route('/', projectAdminRoutes(options.store))
  app.route('/', marketplaceRoutes(options))
  app.route('/', projects)
  app.route(PLUGINS_MOUNT, catalogueRoutes(options, 'plugins'))
  app.route(SERVICES_MOUNT, catalogueRoutes(options, 'services'))
  app.route('/app/xdeployments', deploymentRoutes(options.store))
  app.route('/app/xdevkeys', keyRoutes(options.store))
  app.route(PROJECTS_MOUNT, projects)
}

async function protectAnswer(c: Context, next: () => Promise<void>): Promise<void> {
  await next()
  c.res.headers.set('X-Content-Type-Options', 'nosniff')
  c.res.headers.set('Referrer-Policy', 'no-referrer')
  c.res.headers.set('Cache-Control', 'no-store')
}

/** A Host header like `1.2.3.4.5` passes the HTTP server, but the routes cannot build a URL from it. */
async function refuseUnreadableUrl(c: Context, next: () => Promise<void>): Promise<void> {
  if (!URL.canParse(c.req.url))
    throw new HubError(400, 'The Host header must be a name or an address, with or without a port.')
  await next()
}

function refuseBody(): never {
  throw new HubError(413, `The request body is larger than the limit of ${MAX_BODY_BYTES} bytes.`)
}

/**
 * Serves the page with the fleet of all owners. Only the hub's own machine may see the page without the admin token.
 * The Host header must be `localhost` or a loopback address, too: a foreign web site can point its own name at a
 * loopback address, and its pages could then read the answers.
 */
function answerFleetPage(c: Context, { store, isLocal, now }: AppOptions): Response | Promise<Response> {
  if (!isLocal || !isLoopbackAuthority(c.req.header('host')) || isPassedOn(c)) {
    c.header('WWW-Authenticate', 'Basic realm="hub", charset="UTF-8"')
    requireAdminToLook(c, store)
  }
  const shown = {
    fleet: readFleet(store, parseFleetFilter(c.req.query())),
    catalogue: listCatalogue(store),
    projects: listProjects(store),
    stateOf: (projectId: string) => readProjectState(store, projectId),
    deployments: listDeployments(store, DEPLOYMENTS_SHOWN),
    now: now(),
  }
  return c.html(buildFleetPage(shown), 200, { 'Content-Security-Policy': FLEET_PAGE_POLICY })
}

/** Detects a proxy by its headers: many proxies send a loopback name as the Host, whatever name the client used. */
function isPassedOn(c: Context): boolean {
  return PROXY_HEADERS.some(name => c.req.header(name) !== undefined)
}

function answerHealth(c: Context, store: Store): Response {
  store.db.prepare('SELECT 1').get()
  return c.json({ status: 'ok' })
}

function answerError(c: Context, error: Error, log: AppOptions['log']): Response {
  if (error instanceof HubError && error.status !== 500) return c.json(errorBody(error.message), error.status)
  log(`${c.req.method} ${withoutTicket(c.req.path)} failed: ${error.message}`)
  return c.json(errorBody('The hub has an internal error: see its log for the cause.'), 500)
}

/** Hides the ticket in a download URL, because a valid ticket is a credential. */
function withoutTicket(path: string): string {
  return path.replace(/\/downloads\/.*/, '/downloads/...')
}
