import { type Context, Hono } from 'hono'
import { HubError } from '../../errors.ts'
import { requireAdmin } from '../../http/access.ts'
import type { Store } from '../../store.ts'
import { refuseOtherProject } from '../access-tokens.ts'
import { requireDeployableProject } from '../deployable-project.ts'
import { useProjectKey } from '../project-keys.ts'
import { publishProject } from '../publish.ts'
import type { Disk } from './disk-space.ts'
import { receivePublication } from './publication-request.ts'

export const PUBLISH_PATH = '/v1/projects/:projectId/publish'

const NO_KEY =
  'Publishing needs a dev key from "project devkey --publish" in the X-API-Key header, or the admin token in the Authorization header, as a Bearer token.'

export interface PublishContext {
  readonly store: Store
  /** The limit for a sealed file. */
  readonly maxArtifactBytes: number
  /** The disk of the data folder. */
  readonly disk: Disk
}

/** The route for sealed files, and the only one whose body may exceed the limit for JSON. */
export function publishRoutes(context: PublishContext): Hono {
  const app = new Hono()
  app.post(PUBLISH_PATH, c => acceptVersion(c, context))
  return app
}

/**
 * Accepts the admin token, or, in `X-API-Key`, a dev key that was created to publish this project. Does not read the
 * body until it is certain that the sender may publish.
 */
async function acceptVersion(c: Context, { store, maxArtifactBytes, disk }: PublishContext): Promise<Response> {
  const projectId = c.req.param('projectId') ?? ''
  const value = c.req.header('x-api-key')
  if (value === undefined && c.req.header('authorization') === undefined) throw new HubError(401, NO_KEY)
  if (value === undefined) requireAdmin(c, store)
  else requirePublisher(store, { value, projectId })
  const upload = { projectId, maxBytes: maxArtifactBytes, disk }
  const { project_id, version, sha256, size, published_at, revoked_at } = await receivePublication(c, upload, sealed =>
    publishProject(store, sealed, requireDeployableProject),
  )
  return c.json(
    {
      artifact_id: sha256,
      project_id,
      version,
      content_sha256: sha256,
      size_bytes: size,
      created_at: published_at,
      ...(revoked_at === null ? {} : { revoked_at }),
    },
    201,
  )
}

/** Throws HubError 401 for an unknown or revoked dev key, 403 for one of another project or one that cannot publish. */
function requirePublisher(store: Store, { value, projectId }: { value: string; projectId: string }): void {
  const key = useProjectKey(store, ['devkey', 'publisher'], value)
  if (key?.is_active !== true) throw new HubError(401, 'The dev key is unknown or revoked.')
  refuseOtherProject(key, projectId)
  if (key.purpose !== 'publisher')
    throw new HubError(403, `The dev key ${key.prefix}... cannot publish: create one with "project devkey --publish".`)
}
