import { type Context, Hono } from 'hono'
import { z } from 'zod'
import { streamArtifact } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import { readJsonBody } from '../json-body.ts'
import type { Store } from '../store.ts'
import { issueToken, requireProject, TOKEN_LIFE_SECONDS, useToken } from './access-tokens.ts'
import { authorizationSchema, releaseDek } from './authorize.ts'
import { latestProjectVersion, readProjectVersion } from './catalogue.ts'
import { projectIdSchema } from './names.ts'
import type { ProjectKey } from './project-keys.ts'
import { projectReportSchema, recordProjectReport } from './reports.ts'

const MAX_DEVKEY_CHARS = 512

const authSchema = z.object({
  xdevkey: z
    .string()
    .min(1, { error: 'must not be empty' })
    .max(MAX_DEVKEY_CHARS, { error: `must have at most ${MAX_DEVKEY_CHARS} characters` }),
  project_id: projectIdSchema,
})

export interface ProjectRouteOptions {
  readonly store: Store
  /** Milliseconds since 1970. */
  readonly now: () => number
}

/** The proposed contract's routes (contract 4.2). Every call but the first needs a token, which opens one project. */
export function projectRoutes(options: ProjectRouteOptions): Hono {
  const app = new Hono()
  app.post('/v1/auth', c => answerToken(c, options))
  app.get('/v1/projects/:projectId/versions/latest', c => answerLatest(c, options))
  app.get('/v1/projects/:projectId/artifacts/:version', c => answerDescriptor(c, options))
  app.get('/v1/projects/:projectId/artifacts/:version/download', c => answerBytes(c, options))
  app.post('/v1/deployments/authorize', c => answerDek(c, options))
  app.post('/v1/deployments/report', c => acceptReport(c, options))
  return app
}

async function answerToken(c: Context, { store, now }: ProjectRouteOptions): Promise<Response> {
  const { xdevkey, project_id } = await readJsonBody(c, authSchema)
  const access_token = issueToken(store, xdevkey, project_id, now())
  return c.json({ access_token, token_type: 'Bearer', expires_in: TOKEN_LIFE_SECONDS })
}

function answerLatest(c: Context, options: ProjectRouteOptions): Response {
  const projectId = requireOwnProject(c, options)
  const latest = latestProjectVersion(options.store, projectId)
  if (latest === undefined) {
    throw new HubError(404, `The project ${projectId} has no version that is published and not revoked.`)
  }
  return c.json({ version: latest.version })
}

/** The address is under the name that the caller used, so that it also holds behind a proxy. */
function answerDescriptor(c: Context, options: ProjectRouteOptions): Response {
  const projectId = requireOwnProject(c, options)
  const { version, signature, signer_public_key } = requestedVersion(c, options.store, projectId)
  const path = `/v1/projects/${projectId}/artifacts/${encodeURIComponent(version)}/download`
  return c.json({ download_url: new URL(path, c.req.url).href, signature, signer_public_key })
}

async function answerBytes(c: Context, options: ProjectRouteOptions): Promise<Response> {
  const projectId = requireOwnProject(c, options)
  const version = requestedVersion(c, options.store, projectId)
  const bytes = await streamArtifact(options.store, version)
  const headers = { 'Content-Type': 'application/octet-stream', 'Content-Length': String(version.size) }
  if (c.req.method !== 'HEAD') return c.body(bytes as globalThis.ReadableStream, 200, headers)
  await bytes.cancel()
  return c.body(null, 200, headers)
}

async function answerDek(c: Context, options: ProjectRouteOptions): Promise<Response> {
  const { project_id } = requireToken(c, options)
  const dek = releaseDek(options.store, project_id, await readJsonBody(c, authorizationSchema))
  return c.json({ dek: dek.toString('base64') })
}

async function acceptReport(c: Context, options: ProjectRouteOptions): Promise<Response> {
  const key = requireToken(c, options)
  const report = await readJsonBody(c, projectReportSchema)
  requireProject(key, report.project_id, 'access token')
  recordProjectReport(options.store, report)
  return c.json({ deployment_id: report.deployment_id }, 201)
}

function requireOwnProject(c: Context, options: ProjectRouteOptions): string {
  const key = requireToken(c, options)
  requireProject(key, c.req.param('projectId') ?? '', 'access token')
  return key.project_id
}

function requireToken(c: Context, { store, now }: ProjectRouteOptions): ProjectKey {
  const [, token] = /^Bearer +(\S+)$/i.exec(c.req.header('authorization') ?? '') ?? []
  if (token === undefined)
    throw new HubError(401, 'This call needs an access token in the header Authorization: Bearer.')
  return useToken(store, token, now())
}

function requestedVersion(c: Context, store: Store, projectId: string) {
  return readProjectVersion(store, projectId, c.req.param('version') ?? '')
}
