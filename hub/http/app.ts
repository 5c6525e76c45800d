import { type Context, Hono } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import { except } from 'hono/combine'
import { methodNotAllowed } from 'hono/method-not-allowed'
import { errorBody, HubError } from '../errors.ts'
import { listCatalogue } from '../marketplace/catalogue.ts'
import { readFleet } from '../marketplace/fleet-view.ts'
import { catalogueRoutes, deploymentRoutes, marketplaceRoutes } from '../marketplace/routes.ts'
import { buildFleetPage, FLEET_PAGE_POLICY } from '../page/fleet-page.ts'
import { parseFleetFilter } from '../page/page-link.ts'
import { projectAdminRoutes } from '../project/admin-routes.ts'
import { listProjects } from '../project/catalogue.ts'
import { PUBLISH_PATH, type PublishContext, publishRoutes } from '../project/publishing/publish-route.ts'
import { listDeployments, readProjectState } from '../project/reports.ts'
import { projectRoutes } from '../project/routes.ts'
import type { Store } from '../store.ts'
import { requireAdminToLook } from './access.ts'
import { isLoopbackAuthority } from './loopback.ts'

const MAX_BODY_BYTES = 1024 * 1024
const DEPLOYMENTS_SHOWN = 20
const PROXY_HEADERS = ['forwarded', 'via', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'x-real-ip']
const PROJECTS_MOUNT = '/app/xdeploy'

export interface AppOptions extends PublishContext {
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
export function buildApp(options: AppOptions): Hono {
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
  app.use(
    except(
      [PUBLISH_PATH, `${PROJECTS_MOUNT}${PUBLISH_PATH}`],
      bodyLimit({ maxSize: MAX_BODY_BYTES, onError: refuseBody }),
    ),
  )
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
  app.route('/', marketplaceRoutes(options.store))
  app.route('/', projects)
  app.route('/app/marketplace', catalogueRoutes(options.store, 'plugins'))
  app.route('/app/xservices', catalogueRoutes(options.store, 'services'))
  app.route('/app/xdeployments', deploymentRoutes(options.store))
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
