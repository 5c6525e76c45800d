import { type Context, Hono } from 'hono'
import { z } from 'zod'
import { requireAdmin } from '../access.ts'
import { answerArtifact } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import { readJsonBody } from '../http/bodies.ts'
import { base64Schema, projectIdSchema } from '../names.ts'
import type { Store } from '../store.ts'
import {
  createProject,
  findBySignature,
  latestProjectVersion,
  readEncryptedDek,
  readProjectVersion,
  revokeProjectVersion,
} from './catalogue.ts'
import { decryptDek } from './encrypt.ts'
import {
  createProjectKey,
  type IssuedProjectKey,
  issueTicket,
  issueToken,
  type ProjectKey,
  projectKeyRequestSchema,
  readProjectKey,
  refuseOtherProject,
  revokeProject,
  revokeProjectKey,
  TOKEN_LIFE_SECONDS,
  type TokenContext,
  useProjectKey,
  useTicket,
  useToken,
} from './keys.ts'
import { completeReport, projectReportSchema, recordProjectReport } from './reports.ts'

const MAX_DEVKEY_CHARS = 512

const authSchema = z.object({
  xdevkey: z
    .string()
    .min(1, { error: 'must not be empty' })
    .max(MAX_DEVKEY_CHARS, { error: `must have at most ${MAX_DEVKEY_CHARS} characters` }),
  project_id: projectIdSchema,
})

/**
 * The proposed contract's routes (contract 4.2). All need an access token for one project, except the login, and the
 * download, which has a secret address.
 */
export function projectRoutes(context: TokenContext): Hono {
  const app = new Hono()
  app.post('/v1/auth', c => answerToken(c, context))
  app.get('/v1/projects/:projectId/versions/latest', c => answerLatest(c, context))
  app.get('/v1/projects/:projectId/artifacts/:version', c => answerDescriptor(c, context))
  app.get('/v1/downloads/:ticket', c => answerBytes(c, context))
  app.post('/v1/deployments/authorize', c => answerDek(c, context))
  app.post('/v1/deployments/report', c => acceptReport(c, context))
  return app
}

async function answerToken(c: Context, context: TokenContext): Promise<Response> {
  const access_token = await issueToken(context, await readJsonBody(c, authSchema))
  return c.json({ access_token, token_type: 'Bearer', expires_in: TOKEN_LIFE_SECONDS })
}

function answerLatest(c: Context, context: TokenContext): Response {
  const { project_id } = requireOwnProject(c, context)
  const latest = latestProjectVersion(context.store, project_id)
  if (latest === undefined) {
    throw new HubError(
      404,
      `The project ${project_id} has no version to deploy: none is published, or all are revoked.`,
    )
  }
  return c.json({ version: latest.version })
}

/** The `download_url` uses the host name and the mount of the request, so that it also works behind a proxy. */
async function answerDescriptor(c: Context, context: TokenContext): Promise<Response> {
  const devkey = requireOwnProject(c, context)
  const wanted = { project_id: devkey.project_id, version: c.req.param('version') ?? '' }
  const { signature, signer_public_key } = readProjectVersion(context.store, wanted)
  const path = `${mountOf(c)}/v1/downloads/${await issueTicket(context, devkey, wanted)}`
  return c.json({ download_url: new URL(path, c.req.url).href, signature, signer_public_key })
}

/** The prefix of the routes in the request's path: empty, or the path where they are mounted. */
function mountOf(c: Context): string {
  return c.req.path.slice(0, c.req.path.indexOf('/v1/'))
}

async function answerBytes(c: Context, context: TokenContext): Promise<Response> {
  const version = useTicket(context, c.req.param('ticket') ?? '')
  return await answerArtifact(c, context.store, version, { 'Content-Type': 'application/octet-stream' })
}

async function answerDek(c: Context, context: TokenContext): Promise<Response> {
  const { project_id } = requireToken(c, context)
  const dek = releaseDek(context.store, { project_id, ...(await readJsonBody(c, authorizationSchema)) })
  return c.json({ dek: dek.toString('base64') })
}

async function acceptReport(c: Context, context: TokenContext): Promise<Response> {
  const key = requireToken(c, context)
  const sent = await readJsonBody(c, projectReportSchema)
  const now = context.now()
  const report = completeReport(sent, now)
  refuseOtherProject(key, report.project_id)
  await context.store.shared.run(() => recordProjectReport(context.store, report, now))
  return c.json({ deployment_id: report.deployment_id }, 201)
}

function requireOwnProject(c: Context, context: TokenContext): ProjectKey {
  const key = requireToken(c, context)
  refuseOtherProject(key, c.req.param('projectId') ?? '')
  return key
}

function requireToken(c: Context, context: TokenContext): ProjectKey {
  const [, token] = /^Bearer +(\S+)$/i.exec(c.req.header('authorization') ?? '') ?? []
  if (token === undefined)
    throw new HubError(401, 'This route needs an access token in the Authorization header, as a Bearer token.')
  return useToken(context, token)
}

const MAX_CREDENTIAL_CHARS = 512

const authorizationSchema = z.object({
  deployment_credential: z
    .string()
    .min(1, { error: 'must not be empty' })
    .max(MAX_CREDENTIAL_CHARS, { error: `must have at most ${MAX_CREDENTIAL_CHARS} characters` }),
  artifact_signature: base64Schema(64),
})

/** A request for the DEK of the project's version with this signature. */
type DekRequest = z.infer<typeof authorizationSchema> & { readonly project_id: string }

/**
 * Releases the DEK of the project's version with this signature. Revocation takes effect here (contract 4.2): throws
 * HubError 403 if the credential is unknown, revoked or for another project, or if the version is revoked. Throws 404
 * if no version has the signature, and 500 as decryptDek does.
 */
function releaseDek(store: Store, request: DekRequest): Buffer {
  const { project_id } = request
  requireCredential(store, request)
  const version = findBySignature(store, request)
  if (version === undefined) throw new HubError(404, `No version of the project ${project_id} has this signature.`)
  if (version.revoked_at !== null) {
    throw new HubError(403, `Version ${version.version} of the project ${project_id} was revoked.`)
  }
  return decryptDek(store, version, readEncryptedDek(store, version))
}

function requireCredential(store: Store, { project_id, deployment_credential }: DekRequest): void {
  const credential = useProjectKey(store, ['credential'], deployment_credential)
  if (credential === undefined) throw new HubError(403, 'The deployment credential is unknown.')
  refuseOtherProject(credential, project_id)
  if (!credential.is_active) throw new HubError(403, `The deployment credential ${credential.prefix}... was revoked.`)
}

const VALUE_FIELD = { devkey: 'xdevkey', publisher: 'xdevkey', credential: 'deployment_credential' } as const

const devkeyRequestSchema = projectKeyRequestSchema.extend({ can_publish: z.boolean().optional() })

/** Routes for the hub's administrator, which are not part of the contract. All need the admin token. */
export function projectAdminRoutes(store: Store): Hono {
  const app = new Hono()
  app.post('/v1/projects', c => acceptProject(c, store))
  app.delete('/v1/projects/:projectId/versions/:version', c => revokeVersion(c, store))
  app.post('/v1/projects/:projectId/devkeys', c => issueDevkey(c, store))
  app.post('/v1/projects/:projectId/deployment-credentials', c => issueCredential(c, store))
  app.delete('/v1/projects/:projectId/keys', c => revokeAllKeys(c, store))
  app.delete('/v1/projects/:projectId/keys/:id', c => revokeOneKey(c, store))
  return app
}

function revokeVersion(c: Context, store: Store): Response {
  requireAdmin(c, store)
  revokeProjectVersion(store, { project_id: projectIdFromPath(c), version: c.req.param('version') ?? '' })
  return c.body(null, 204)
}

async function acceptProject(c: Context, store: Store): Promise<Response> {
  requireAdmin(c, store)
  const { name } = await readJsonBody(c, projectKeyRequestSchema)
  return c.json(createProject(store, name), 201)
}

async function issueDevkey(c: Context, store: Store): Promise<Response> {
  requireAdmin(c, store)
  const { name, can_publish } = await readJsonBody(c, devkeyRequestSchema)
  return answerKey(
    c,
    createProjectKey(store, { project_id: projectIdFromPath(c), purpose: can_publish ? 'publisher' : 'devkey', name }),
  )
}

async function issueCredential(c: Context, store: Store): Promise<Response> {
  requireAdmin(c, store)
  const { name } = await readJsonBody(c, projectKeyRequestSchema)
  return answerKey(c, createProjectKey(store, { project_id: projectIdFromPath(c), purpose: 'credential', name }))
}

function answerKey(c: Context, { value, record }: IssuedProjectKey): Response {
  return c.json({ ...record, [VALUE_FIELD[record.purpose]]: value }, 201)
}

function revokeAllKeys(c: Context, store: Store): Response {
  requireAdmin(c, store)
  return c.json({ revoked: revokeProject(store, projectIdFromPath(c)).map(({ id }) => id) })
}

function revokeOneKey(c: Context, store: Store): Response {
  requireAdmin(c, store)
  const { id, project_id } = readProjectKey(store, c.req.param('id') ?? '')
  if (project_id !== projectIdFromPath(c)) throw new HubError(404, 'This project has no key with this id.')
  revokeProjectKey(store, id)
  return c.body(null, 204)
}

function projectIdFromPath(c: Context): string {
  return c.req.param('projectId') ?? ''
}
