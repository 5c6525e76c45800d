import { type Context, Hono } from 'hono'
import { z } from 'zod'
import { requireAdmin } from '../../access.ts'
import { HubError } from '../../errors.ts'
import { boundaryOf, readParts } from '../../http/bodies.ts'
import { type PublishContext, type Receiving, receiveUpload, saveFile } from '../../http/uploads.ts'
import { labelSchema, parseInput } from '../../names.ts'
import type { Store } from '../../store.ts'
import { refuseOtherProject, useProjectKey } from '../keys.ts'
import { publishProject, requireDeployableProject, type SealedRelease } from '../publish.ts'

export const PUBLISH_PATH = '/v1/projects/:projectId/publish'

const NO_KEY =
  'Publishing needs a dev key from "project devkey --publish" in the X-API-Key header, or the admin token in the Authorization header, as a Bearer token.'

/** The route for sealed files, whose body may exceed the limit for JSON. */
export function publishRoutes(context: PublishContext): Hono {
  const app = new Hono()
  app.post(PUBLISH_PATH, c => acceptVersion(c, context))
  return app
}

/**
 * Accepts the admin token, or, in `X-API-Key`, a dev key that was created to publish this project. Does not read the
 * body until it is certain that the sender may publish.
 */
async function acceptVersion(c: Context, context: PublishContext): Promise<Response> {
  const { store } = context
  const projectId = c.req.param('projectId') ?? ''
  const authorize = () => requirePublisher(c, store, projectId)
  authorize()
  const { project_id, version, sha256, size, published_at, revoked_at } = await receiveUpload(c, context, {
    authorize,
    receive: async to => {
      const fields = await receive(c, to)
      parseInput(nameSchema, fields)
      return releaseOf(fields, projectId)
    },
    publish: (bytes, release) => publishProject(store, { bytes, release }, requireDeployableProject),
  })
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
function requirePublisher(c: Context, store: Store, projectId: string): void {
  const value = c.req.header('x-api-key')
  if (value === undefined && c.req.header('authorization') === undefined) throw new HubError(401, NO_KEY)
  if (value === undefined) {
    requireAdmin(c, store)
    return
  }
  const key = useProjectKey(store, ['devkey', 'publisher'], value)
  if (key?.is_active !== true) throw new HubError(401, 'The dev key is unknown or revoked.')
  refuseOtherProject(key, projectId)
  if (key.purpose !== 'publisher')
    throw new HubError(403, `The dev key ${key.prefix}... cannot publish: create one with "project devkey --publish".`)
}

const MAX_FIELD_BYTES = 4 * 1024
const FILE_FIELD = 'artifact'
/** Other clients send this field; nothing here depends on it. */
const nameSchema = z.object({ project_name: labelSchema.optional() })
const HEADER_OF_FIELD = {
  version: 'x-version',
  signature: 'x-artifact-signature',
  signer_public_key: 'x-signer-public-key',
  dek: 'x-dek',
} as const

type Fields = Readonly<Record<string, string>>

/**
 * Receives a sealed file with its release: a form (multipart/form-data) with the file in `artifact`, or the bare file
 * (application/octet-stream) with the fields in headers. Throws HubError 415 for a different content type, 400 for a
 * malformed form, and as saveFile does.
 */
async function receive(c: Context, to: Receiving): Promise<Fields> {
  const contentType = c.req.header('content-type') ?? ''
  const body = (c.req.raw.body ?? []) as AsyncIterable<Uint8Array>
  const boundary = boundaryOf(contentType)
  if (boundary !== undefined) return await receiveForm(readParts(body, boundary), to)
  if (contentType !== 'application/octet-stream')
    throw new HubError(
      415,
      'The Content-Type must be multipart/form-data with a boundary, or application/octet-stream.',
    )
  await saveFile(body, to)
  return Object.fromEntries(Object.entries(HEADER_OF_FIELD).map(([field, name]) => [field, c.req.header(name) ?? '']))
}

async function receiveForm(parts: ReturnType<typeof readParts>, to: Receiving): Promise<Fields> {
  const fields = new Map<string, string>()
  for await (const { name, chunks } of parts) {
    if (fields.has(name)) throw new HubError(400, `${name.slice(0, 60)}: must be given only once`)
    if (name === FILE_FIELD) await saveFile(chunks, to)
    fields.set(name, name === FILE_FIELD ? '' : await readField(name, chunks))
  }
  if (!fields.has(FILE_FIELD)) throw new HubError(400, `${FILE_FIELD}: is missing`)
  return Object.fromEntries(fields)
}

async function readField(name: string, chunks: AsyncIterable<Buffer>): Promise<string> {
  const value: Buffer[] = []
  let length = 0
  for await (const chunk of chunks) {
    length += chunk.length
    if (length > MAX_FIELD_BYTES)
      throw new HubError(400, `${name.slice(0, 60)}: must have at most ${MAX_FIELD_BYTES} bytes`)
    value.push(chunk)
  }
  return Buffer.concat(value).toString('utf8')
}

/** Leaves missing fields empty, for publishProject to report. */
function releaseOf(fields: Fields, projectId: string): SealedRelease['release'] {
  const names = Object.keys(HEADER_OF_FIELD) as (keyof typeof HEADER_OF_FIELD)[]
  const [version = '', signature = '', signer_public_key = '', dek = ''] = names.map(name => fields[name] ?? '')
  const { content_sha256 } = fields
  return { project_id: projectId, version, signature, signer_public_key, dek, content_sha256 }
}
