import { type Context, Hono } from 'hono'
import { z } from 'zod'
import { streamArtifact } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import { readJsonBody } from '../http/json-body.ts'
import { issueToken, refuseOtherProject, TOKEN_LIFE_SECONDS, type TokenContext, useToken } from './access-tokens.ts'
import { authorizationSchema, releaseDek } from './authorize.ts'
import { latestProjectVersion, readProjectVersion } from './catalogue.ts'
import { issueTicket, useTicket } from './download-tickets.ts'
import { projectIdSchema } from './names.ts'
import type { ProjectKey } from './project-keys.ts'
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
  const bytes = await streamArtifact(context.store, version)
  const headers = { 'Content-Type': 'application/octet-stream', 'Content-Length': String(version.size) }
  if (c.req.method !== 'HEAD') return c.body(bytes as globalThis.ReadableStream, 200, headers)
  await bytes.cancel()
  return c.body(null, 200, headers)
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
