import { type Context, Hono } from 'hono'
import { requireAdmin } from '../access.ts'
import { HubError } from '../errors.ts'
import { readJsonBody } from '../json-body.ts'
import type { Store } from '../store.ts'
import { revokeProjectVersion } from './catalogue.ts'
import {
  createProjectKey,
  projectKeyRequestSchema,
  readProjectKey,
  revokeProject,
  revokeProjectKey,
} from './project-keys.ts'
import { publishProject, type Release } from './publish.ts'
import { readBodyBytes } from './request-bytes.ts'

const MAX_ARTIFACT_BYTES = 512 * 1024 * 1024
const PURPOSE_OF_SEGMENT = { devkeys: 'devkey', 'deployment-credentials': 'credential' } as const
const VALUE_FIELD = { devkey: 'xdevkey', credential: 'deployment_credential' } as const

const VERSIONS_PATH = '/v1/projects/:projectId/versions'

/** The routes that take sealed files: the only ones whose body may exceed the limit for JSON. */
export const UPLOAD_PATHS = [VERSIONS_PATH, `/app/xdeploy${VERSIONS_PATH}`]

/** Routes for the hub's administrator, not part of the contract. All of them need the admin token. */
export function projectAdminRoutes(store: Store): Hono {
  const app = new Hono()
  app.post(VERSIONS_PATH, c => acceptVersion(c, store))
  app.delete(`${VERSIONS_PATH}/:version`, c => revokeVersion(c, store))
  app.post('/v1/projects/:projectId/:segment{devkeys|deployment-credentials}', c => issueKey(c, store))
  app.delete('/v1/projects/:projectId/keys', c => revokeAllKeys(c, store))
  app.delete('/v1/projects/:projectId/keys/:id', c => revokeOneKey(c, store))
  return app
}

/** The body is the sealed file. The release, including the DEK, is in headers, like the admin token. */
async function acceptVersion(c: Context, store: Store): Promise<Response> {
  requireAdmin(c, store)
  const release = releaseFromHeaders(c)
  const bytes = await readBodyBytes(c, MAX_ARTIFACT_BYTES)
  return c.json(await publishProject(store, { bytes, release }), 201)
}

function releaseFromHeaders(c: Context): Release {
  const header = (name: string) => c.req.header(name) ?? ''
  return {
    project_id: projectIdFromPath(c),
    version: header('x-version'),
    signature: header('x-artifact-signature'),
    signer_public_key: header('x-signer-public-key'),
    dek: header('x-dek'),
  }
}

function revokeVersion(c: Context, store: Store): Response {
  requireAdmin(c, store)
  revokeProjectVersion(store, { project_id: projectIdFromPath(c), version: c.req.param('version') ?? '' })
  return c.body(null, 204)
}

async function issueKey(c: Context, store: Store): Promise<Response> {
  requireAdmin(c, store)
  const purpose = PURPOSE_OF_SEGMENT[c.req.param('segment') === 'devkeys' ? 'devkeys' : 'deployment-credentials']
  const { name } = await readJsonBody(c, projectKeyRequestSchema)
  const { value, record } = createProjectKey(store, { project_id: projectIdFromPath(c), purpose, name })
  return c.json({ ...record, [VALUE_FIELD[purpose]]: value }, 201)
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
