import type { Context } from 'hono'
import { z } from 'zod'
import { requirePublisher } from '../access.ts'
import { HubError, UsageError } from '../errors.ts'
import { type PublishContext, type Receiving, receiveUpload, saveFile } from '../http/uploads.ts'
import { newVersionSchema, parseInput, repoSchema, slugSchema } from '../names.ts'
import { findVersion, isSame, type ListingId } from './catalogue.ts'
import { publishSigned, requireDeployable, signatureSchema } from './publish.ts'

/**
 * Publishes the ZIP in the body, after the same checks as the command `publish`. The admin token or a publish key, as a
 * Bearer token, is checked before the body is read, and again before the version is published. Answers 201, or 200 if
 * the version was already published with the same bytes and signature. Throws HubError 422 for a version, query or signature that
 * cannot be published, and otherwise as requirePublisher, receiveUpload and publishSigned do.
 */
export async function acceptArchive(c: Context, context: PublishContext, { kind, slug }: ListingId): Promise<Response> {
  const { store } = context
  try {
    const isReplacing = c.req.queries('replace')?.includes('true') === true
    const authorize = () => requirePublisher(c, store, { kind, slug, replace: isReplacing })
    authorize()
    const { signature } = parseInput(headSchema, { slug, signature: c.req.header('x-signature') })
    const { version, repo, replace } = parseInput(querySchema, queryOf(c))
    const { answer, wasPublished } = await receiveUpload(c, context, {
      authorize,
      receive: async to => await receiveZip(c, to),
      publish: async bytes => {
        const given = { source: 'The archive', kind: givenKind(kind), slug, version }
        const id = await requireDeployable(bytes, given)
        const before = findVersion(store, id)
        const published = await publishSigned(store, bytes, { ...id, signature, repo, replace })
        const wasPublished = before !== undefined && isSame(before, published)
        return { answer: { kind, slug, version: id.version, sha256: published.sha256 }, wasPublished }
      },
    })
    return c.json(answer, wasPublished ? 200 : 201)
  } catch (error) {
    throw asUnprocessable(error)
  }
}

const headSchema = z.object({ slug: slugSchema, signature: signatureSchema })

const querySchema = z.strictObject({
  version: newVersionSchema.optional(),
  repo: repoSchema.optional(),
  replace: z
    .enum(['true', 'false'], { error: 'must be true or false' })
    .transform(value => value === 'true')
    .default(false),
})

/** A parameter that is given twice stays a list, which the schema refuses. */
function queryOf(c: Context) {
  const all = Object.entries(c.req.queries())
  return Object.fromEntries(all.map(([name, values]) => [name, values.length === 1 ? values[0] : values]))
}

/** A plugin's archive shows that it is a plugin, so only the kind service must be given, as on the command line. */
function givenKind(kind: ListingId['kind']): 'service' | undefined {
  return kind === 'service' ? kind : undefined
}

async function receiveZip(c: Context, to: Receiving): Promise<void> {
  if (c.req.header('content-type') !== 'application/zip')
    throw new HubError(415, 'The Content-Type must be application/zip.')
  await saveFile((c.req.raw.body ?? []) as AsyncIterable<Uint8Array>, to)
}

function asUnprocessable(error: unknown): unknown {
  const isRefused = error instanceof UsageError || (error instanceof HubError && error.status === 400)
  return isRefused ? new HubError(422, error.message) : error
}
