import { type Context, Hono } from 'hono'
import { z } from 'zod'
import { createKey, keyRequestSchema, maySee, requireAdmin, requireBinding, requireKey } from '../access.ts'
import { answerArtifact } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import { readJsonBody } from '../http/bodies.ts'
import type { PublishContext } from '../http/uploads.ts'
import { type Kind, kindSchema, parseInput, slugSchema } from '../names.ts'
import type { Store } from '../store.ts'
import {
  chooseVersion,
  type Listing,
  type ListingId,
  latestVersion,
  noListing,
  type PublishedVersion,
  publishStatus,
  readListing,
  searchCatalogue,
} from './catalogue.ts'
import { acceptArchive } from './publish-route.ts'
import { listHosts, listReports, recordReport, reportSchema } from './reports.ts'

const KIND_OF_SEGMENT = { plugins: 'plugin', services: 'service' } as const
type Segment = keyof typeof KIND_OF_SEGMENT
const LIMIT = 'must be a whole number from 1 to 1000'
const VERSION_HEADER = { plugin: 'X-Plugin', service: 'X-Service' } as const

/** The marketplace contract's routes (contract 4.1), without a version prefix (contract 9, rule 2). */
export function marketplaceRoutes(context: PublishContext): Hono {
  const { store } = context
  const app = new Hono()
  app.route('/', catalogueRoutes(context, 'plugins'))
  app.route('/', catalogueRoutes(context, 'services'))
  app.route('/', deploymentRoutes(store))
  app.route('/', keyRoutes(store))
  return app
}

/** The route that issues keys. */
export function keyRoutes(store: Store): Hono {
  return new Hono().post('/devkeys/api-keys', c => issueKey(c, store))
}

/** The browse, detail, artifact and publish routes of plugins or of services. */
export function catalogueRoutes(context: PublishContext, segment: Segment): Hono {
  const { store } = context
  const app = new Hono()
  const listing = (c: Context) => ({ kind: KIND_OF_SEGMENT[segment], slug: c.req.param('slug') ?? '' })
  app.get(`/${segment}`, c => answerBrowse(c, store, KIND_OF_SEGMENT[segment]))
  app.get(`/${segment}/:slug`, c => answerDetail(c, store, listing(c)))
  app.get(`/${segment}/:slug/install`, c => answerInstall(c, store, listing(c)))
  app.post(`/${segment}/:slug/publish`, c => acceptArchive(c, context, listing(c)))
  return app
}

/** The routes of reports and hosts. */
export function deploymentRoutes(store: Store): Hono {
  const app = new Hono()
  app.get('/deployments', c => answerDeployments(c, store))
  app.post('/deployments/report', c => acceptReport(c, store))
  app.get('/deployments/:kind/:slug/hosts', c => answerHosts(c, store))
  return app
}

/** Needs no key. Lists private listings only to those who may see them. */
function answerBrowse(c: Context, store: Store, kind: Kind): Response {
  const found = searchCatalogue(store, kind, c.req.query('search') ?? '')
  return c.json(found.filter(listing => !listing.is_private || maySee(c, store, listing)).map(listingEntry))
}

/** Needs no key (contract 4.3, rule 1), except for a private listing. */
function answerDetail(c: Context, store: Store, wanted: ListingId): Response {
  const listing = readListing(store, wanted)
  if (listing.is_private && !maySee(c, store, wanted)) throw noListing(wanted)
  return c.json({ ...listingEntry(listing), versions: listing.versions.map(versionEntry) })
}

function listingEntry(listing: Listing) {
  const { kind, slug, name, is_private, versions } = listing
  const created_at = versions.map(({ published_at }) => published_at).sort()[0] ?? null
  const publish_status = publishStatus(listing)
  return { kind, slug, name, latest_version: latestVersion(listing), publish_status, private: is_private, created_at }
}

async function answerInstall(c: Context, store: Store, wanted: ListingId): Promise<Response> {
  requireBinding(requireKey(c, store), wanted)
  const version = chooseVersion(readListing(store, wanted), c.req.query('version') || 'latest')
  return await answerArtifact(c, store, version, artifactHeaders(version))
}

async function issueKey(c: Context, store: Store): Promise<Response> {
  requireAdmin(c, store)
  const { key, record } = createKey(store, await readJsonBody(c, keyRequestSchema))
  const { id, name, prefix, is_active, created_at, last_used_at } = record
  return c.json({ id, name, prefix, is_active, created_at, last_used_at, key }, 201)
}

async function acceptReport(c: Context, store: Store): Promise<Response> {
  const key = requireKey(c, store)
  const report = await readJsonBody(c, reportSchema)
  requireBinding(key, report)
  return c.json(await store.shared.run(() => recordReport(store, key.owner, report)), 201)
}

const deploymentsQuerySchema = z.object({
  kind: kindSchema.optional(),
  slug: slugSchema.optional(),
  limit: z.coerce
    .number({ error: LIMIT })
    .int({ error: LIMIT })
    .min(1, { error: LIMIT })
    .max(1000, { error: LIMIT })
    .default(100),
})

/** With a key, the answer lists the reports of the key's owner; with the admin token and no key, all reports. */
function answerDeployments(c: Context, store: Store): Response {
  const { kind, slug, limit } = parseInput(deploymentsQuerySchema, c.req.query())
  if (c.req.header('x-api-key') === undefined && c.req.header('authorization') !== undefined) {
    requireAdmin(c, store)
    return c.json(listReports(store, { kind, slug, limit }))
  }
  const key = requireKey(c, store)
  const own = { kind: kind ?? key.kind ?? undefined, slug: slug ?? key.slug ?? undefined }
  if (own.kind !== undefined && own.slug !== undefined) requireBinding(key, { kind: own.kind, slug: own.slug })
  return c.json(listReports(store, { ...own, limit, owner: key.owner }))
}

/** With a key, the answer lists the hosts of the key's owner; with the admin token and no key, all hosts. */
function answerHosts(c: Context, store: Store): Response {
  const kind = kindSchema.safeParse(c.req.param('kind'))
  if (!kind.success) throw new HubError(404, 'This route does not exist: the kind must be plugin or service.')
  const wanted = { kind: kind.data, slug: c.req.param('slug') ?? '' }
  if (c.req.header('x-api-key') === undefined && c.req.header('authorization') !== undefined) {
    requireAdmin(c, store)
    return c.json(listHosts(store, wanted))
  }
  const key = requireKey(c, store)
  requireBinding(key, wanted)
  return c.json(listHosts(store, wanted, key.owner))
}

function versionEntry(published: PublishedVersion) {
  const { version, sha256, size, repo, published_at, held_at, yanked_at } = published
  return { version, sha256, size, repo, published_at, held_back: held_at !== null, yanked: yanked_at !== null }
}

function artifactHeaders({ kind, slug, version, ...artifact }: PublishedVersion): Record<string, string> {
  return {
    'Content-Type': 'application/zip',
    'Content-Disposition': `attachment; filename="${slug}-${version}.zip"`,
    'X-Signature': artifact.signature,
    [VERSION_HEADER[kind]]: `${slug}@${version}`,
    ...(artifact.repo === null ? {} : { 'X-Repo': artifact.repo }),
  }
}
