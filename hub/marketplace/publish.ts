import { createHash, createHmac } from 'node:crypto'
import { z } from 'zod'
import { keepArtifact } from '../artifacts.ts'
import { zipFolder } from '../folder-archive.ts'
import { type GitSource, zipGitCommit } from '../git-archive.ts'
import { kindSchema, labelSchema, parseInput, repoSchema, slugSchema, versionSchema } from '../names.ts'
import type { Store } from '../store.ts'
import { addVersion, type PublishedVersion, requireUnchanged } from './catalogue.ts'

const publicationSchema = z.object({
  kind: kindSchema,
  slug: slugSchema,
  version: versionSchema.refine(version => version !== 'latest', { error: 'must not be "latest"' }),
  signingSecret: z
    .string()
    .min(1, { error: 'must not be empty' })
    .refine(secret => secret === secret.trim(), { error: 'must not start or end with white space' }),
  name: labelSchema.optional(),
  repo: repoSchema.nullable().default(null),
  replace: z.boolean().default(false),
})

/**
 * What to publish. `signingSecret` is the developer's own: the signature is made with it once, and the secret is not
 * kept. `name` is the slug unless given, `repo` reads `owner/repo@tag`, `replace` exchanges a version's bytes.
 */
export type Publication = z.input<typeof publicationSchema>

/**
 * Publishes ZIP bytes exactly as they are. Throws HubError 400 when the publication has a wrong field, 409 when the
 * version is published with other bytes or another secret and `replace` is not set.
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
    yanked_at: null,
  }
  if (!replace) requireUnchanged(store, published)
  await keepArtifact(store, published.sha256, bytes)
  addVersion(store, published, { name, replace })
  return published
}

/** Publishes a folder's files; `leftOut` are the paths that were not. Throws as zipFolder and publishArchive do. */
export async function publishFolder(
  store: Store,
  folder: string,
  publication: Publication,
): Promise<PublishedVersion & { leftOut: string[] }> {
  const { bytes, leftOut } = zipFolder(folder)
  return { ...(await publishArchive(store, bytes, publication)), leftOut }
}

/** Publishes a commit of a git repository as a code host archives it. Throws as zipGitCommit and publishArchive do. */
export async function publishGitCommit(
  store: Store,
  source: GitSource,
  publication: Publication,
): Promise<PublishedVersion> {
  return publishArchive(store, await zipGitCommit(source), publication)
}

/** The `X-Signature` of these bytes (contract 2.1, "Artifact signature"). */
export function signArchive(bytes: Uint8Array, signingSecret: string): string {
  return `hmac_sha256:${createHmac('sha256', signingSecret).update(bytes).digest('hex')}`
}

function sha256Of(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}
