import { type Context, Hono } from 'hono'
import { z } from 'zod'
import { HubError } from '../errors.ts'
import { requireAdmin } from '../http/access.ts'
import { readJsonBody } from '../http/json-body.ts'
import type { Store } from '../store.ts'
import { createProject, revokeProjectVersion } from './catalogue.ts'
import {
  createProjectKey,
  type IssuedProjectKey,
  projectKeyRequestSchema,
  readProjectKey,
  revokeProject,
  revokeProjectKey,
} from './project-keys.ts'

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
