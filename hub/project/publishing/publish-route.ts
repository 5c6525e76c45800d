import { createWriteStream } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { type Context, Hono } from 'hono'
import { z } from 'zod'
import { requireAdmin } from '../../access.ts'
import { FewAtATime } from '../../artifacts.ts'
import { HubError } from '../../errors.ts'
import { boundaryOf, readParts } from '../../http/bodies.ts'
import { labelSchema, parseInput } from '../../names.ts'
import type { Store } from '../../store.ts'
import { refuseOtherProject, useProjectKey } from '../keys.ts'
import { publishProject, requireDeployableProject, type SealedRelease } from '../publish.ts'
import { type Disk, newUploadFolder, Receptions, requireRoom } from './uploads.ts'

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

const MAX_FIELD_BYTES = 4 * 1024
/** The most bytes that a form may have in addition to its file. */
const FORM_BYTES = 64 * 1024
/** The number of bytes after which the free space is checked again. */
const CHECKED_BYTES = 8 * 1024 * 1024
const RETRY_SECONDS = '60'
const FILE_FIELD = 'artifact'
/** Other clients send this field; nothing here depends on it. */
const nameSchema = z.object({ project_name: labelSchema.optional() })
const HEADER_OF_FIELD = {
  version: 'x-version',
  signature: 'x-artifact-signature',
  signer_public_key: 'x-signer-public-key',
  dek: 'x-dek',
} as const

/** A file that is being received, with the caller's limit in bytes. */
interface Upload {
  readonly projectId: string
  readonly maxBytes: number
  /** The hub's data folder. */
  readonly disk: Disk
}

type Publish<T> = (sealed: SealedRelease) => Promise<T>

/** One publication at a time, because each has its whole file in memory. */
const publications = new FewAtATime(1)
const receptions = new Receptions()

/**
 * Receives a sealed file with its release, and publishes the file once no other file is being published. The request is
 * either a form (multipart/form-data) with the file in `artifact`, or the bare file (application/octet-stream) with the
 * fields in headers. The file goes to a private folder next to the data, so that a slow upload keeps nothing in memory.
 * Throws HubError 415 for a different content type, 400 for a malformed form, 413 as soon as the file is known to have
 * more than `maxBytes`, and 507 as soon as the disk has no room. Also throws as Receptions and `publish` do.
 */
async function receivePublication<T>(c: Context, upload: Upload, publish: Publish<T>): Promise<T> {
  refuseAnnounced(c, upload)
  const bytes = Number(c.req.header('content-length') ?? upload.maxBytes)
  try {
    return await receptions.run(upload.disk, bytes, () => accept(c, upload, publish))
  } catch (error) {
    if (error instanceof HubError && error.status === 503) c.header('Retry-After', RETRY_SECONDS)
    throw error
  }
}

async function accept<T>(c: Context, upload: Upload, publish: Publish<T>): Promise<T> {
  const folder = await newUploadFolder(upload.disk.folder)
  try {
    const file = join(folder, 'sealed')
    const fields = await receive(c, { ...upload, file })
    parseInput(nameSchema, fields)
    const release = releaseOf(fields, upload)
    return await publications.run(async () => {
      const bytes = await readFile(file)
      await requireRoom(upload.disk, bytes.length)
      return await publish({ bytes, release })
    })
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

type Fields = Readonly<Record<string, string>>
type Receiving = Upload & { readonly file: string }

function refuseAnnounced(c: Context, { maxBytes }: Upload): void {
  if (Number(c.req.header('content-length') ?? 0) > maxBytes + FORM_BYTES) throw tooLarge(maxBytes)
}

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
    fields.set(name, name === FILE_FIELD ? await saveFile(chunks, to) : await readField(name, chunks))
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

/** Saves the file, and returns an empty text as the value of its field. */
async function saveFile(chunks: AsyncIterable<Uint8Array>, { file, ...upload }: Receiving): Promise<''> {
  await pipeline(limited(chunks, upload), createWriteStream(file, { flags: 'wx', mode: 0o600 }))
  return ''
}

async function* limited(chunks: AsyncIterable<Uint8Array>, { maxBytes, disk }: Upload): AsyncGenerator<Uint8Array> {
  let [length, checked] = [0, 0]
  for await (const chunk of chunks) {
    length += chunk.length
    if (length > maxBytes) throw tooLarge(maxBytes)
    // Other programs write to the disk too.
    if (length - checked >= CHECKED_BYTES) {
      await requireRoom(disk, chunk.length)
      checked = length
    }
    yield chunk
  }
}

/** Leaves missing fields empty, for publishProject to report. */
function releaseOf(fields: Fields, { projectId }: Upload): SealedRelease['release'] {
  const names = Object.keys(HEADER_OF_FIELD) as (keyof typeof HEADER_OF_FIELD)[]
  const [version = '', signature = '', signer_public_key = '', dek = ''] = names.map(name => fields[name] ?? '')
  const { content_sha256 } = fields
  return { project_id: projectId, version, signature, signer_public_key, dek, content_sha256 }
}

function tooLarge(maxBytes: number): HubError {
  return new HubError(413, `The sealed file is larger than the limit of ${maxBytes} bytes.`)
}
