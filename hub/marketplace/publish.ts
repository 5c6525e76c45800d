import { createHash, createHmac } from 'node:crypto'
import { z } from 'zod'
import { keepArtifact } from '../artifacts.ts'
import { zipFolder } from '../folder-archive.ts'
import { type GitSource, zipGitCommit } from '../git-archive.ts'
import { kindSchema, labelSchema, newVersionSchema, parseInput, repoSchema, slugSchema } from '../names.ts'
import type { Store } from '../store.ts'
import { addVersion, type PublishedVersion, requirePublishable } from './catalogue.ts'

const publicationSchema = z.object({
  kind: kindSchema,
  slug: slugSchema,
  version: newVersionSchema,
  signingSecret: z
    .string()
    .min(1, { error: 'must not be empty' })
    .refine(secret => secret === secret.trim(), { error: 'must not start or end with white space' }),
  name: labelSchema.optional(),
  repo: repoSchema.nullable().default(null),
  replace: z.boolean().default(false),
})

/**
 * The facts about a version to publish. `signingSecret` is the developer's own: it signs the artifact and is not
 * stored. `name` defaults to the current display name, or to the slug for a new listing. `repo` has the form
 * `owner/repo@tag`. With `replace`, a version that is already published is replaced, unless it was yanked.
 */
export type Publication = z.input<typeof publicationSchema>

/**
 * Publishes the bytes unchanged, and returns the version as it is now published. A version that is held back stays held
 * back. Does not check that a host would install the bytes: requireDeployable does. Throws HubError 400 for a wrong
 * field, and 409 if the version was yanked. Without `replace`, also throws 409 if the version is already published with
 * different bytes or another secret.
 */
export async function publishArchive(
  store: Store,
  bytes: Uint8Array,
  publication: Publication,
): Promise<PublishedVersion> {
  const { name, replace, signingSecret, ...version } = parseInput(publicationSchema, publication)
  const published: PublishedVersion = {
    ...version,
    sha256: sha256Of(bytes),
    size: bytes.length,
    signature: signArchive(bytes, signingSecret),
    published_at: new Date().toISOString(),
    held_at: null,
    yanked_at: null,
  }
  requirePublishable(store, published, replace)
  await keepArtifact(store, published.sha256, bytes)
  return addVersion(store, published, { name, replace })
}

/**
 * Publishes a folder. `leftOut` lists the paths that are not in the artifact. Throws as zipFolder and publishArchive
 * do.
 */
export async function publishFolder(
  store: Store,
  folder: string,
  publication: Publication,
): Promise<PublishedVersion & { leftOut: string[] }> {
  const { bytes, leftOut } = zipFolder(folder)
  return { ...(await publishArchive(store, bytes, publication)), leftOut }
}

/** Publishes a commit as a code host would archive it. Throws as zipGitCommit and publishArchive do. */
export async function publishGitCommit(
  store: Store,
  source: GitSource,
  publication: Publication,
): Promise<PublishedVersion> {
  const bytes = await zipGitCommit(source)
  return await publishArchive(store, bytes, publication)
}

/** The `X-Signature` of these bytes (contract 2.1, "Artifact signature"). */
export function signArchive(bytes: Uint8Array, signingSecret: string): string {
  return `hmac_sha256:${createHmac('sha256', signingSecret).update(bytes).digest('hex')}`
}

function sha256Of(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}
