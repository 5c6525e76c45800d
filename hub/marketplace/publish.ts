import { createHmac } from 'node:crypto'
import { z } from 'zod'
import { MAX_ARCHIVE_BYTES, requireSafeTree } from '../archive/entries.ts'
import { type GitSource, zipFolder, zipGitCommit } from '../archive/make-zip.ts'
import { openZip } from '../archive/read-zip.ts'
import { hashOf, keepArtifact } from '../artifacts.ts'
import { HubError, UsageError } from '../errors.ts'
import {
  type Kind,
  kindSchema,
  labelSchema,
  newVersionSchema,
  parseInput,
  repoSchema,
  slugOf,
  slugSchema,
  withoutV,
} from '../names.ts'
import type { Store } from '../store.ts'
import { MAX_PLUGIN_YAML_BYTES, requireYamlSize } from '../yaml.ts'
import { addVersion, type PublishedVersion, requirePublishable, type VersionId } from './catalogue.ts'
import { PLUGIN_YAML, type PluginYaml, readPluginYaml } from './plugin-yaml.ts'

export const signatureSchema = z.string().regex(/^hmac_sha256:[0-9a-f]{64}$/, {
  error: 'must be "hmac_sha256:" and 64 lowercase hex digits, in the X-Signature header',
})

const signedSchema = z.object({
  kind: kindSchema,
  slug: slugSchema,
  version: newVersionSchema,
  signature: signatureSchema,
  name: labelSchema.optional(),
  repo: repoSchema.nullable().default(null),
  isPrivate: z.boolean().optional(),
  replace: z.boolean().default(false),
})
export type SignedPublication = z.input<typeof signedSchema>

const publicationSchema = signedSchema.omit({ signature: true }).extend({
  signingSecret: z
    .string()
    .min(1, { error: 'must not be empty' })
    .refine(secret => secret === secret.trim(), { error: 'must not start or end with white space' }),
})

/**
 * The facts about a version to publish. `signingSecret` is the developer's own: it signs the artifact and is not
 * stored. `name` defaults to the current display name, or to the slug for a new listing. `repo` has the form
 * `owner/repo@tag`. With `replace`, a version that is already published is replaced, unless it was yanked.
 */
export type Publication = z.input<typeof publicationSchema>

/** Signs the bytes, and publishes them as publishSigned does. */
export async function publishArchive(
  store: Store,
  bytes: Uint8Array,
  publication: Publication,
): Promise<PublishedVersion> {
  return await publishSigned(store, bytes, signPublication(bytes, publication))
}

/** Replaces the signing secret with the signature of the bytes. Throws HubError 400 for a wrong field. */
export function signPublication(bytes: Uint8Array, publication: Publication): SignedPublication {
  const { signingSecret, ...version } = parseInput(publicationSchema, publication)
  return { ...version, signature: signArchive(bytes, signingSecret) }
}

/**
 * Publishes the bytes unchanged, and returns the version as it is now published. A version that is held back stays held
 * back. Does not check that a host would install the bytes: requireDeployable does. Nor does it check the signature,
 * because only the publisher has the secret. Throws HubError 400 for a wrong field, and 409 if the version was yanked.
 * Without `replace`, also throws 409 if the version is already published with different bytes or another signature.
 */
export async function publishSigned(
  store: Store,
  bytes: Uint8Array,
  publication: SignedPublication,
): Promise<PublishedVersion> {
  const { name, isPrivate, replace, ...version } = parseInput(signedSchema, publication)
  const published: PublishedVersion = {
    ...version,
    sha256: await hashOf(bytes),
    size: bytes.length,
    published_at: new Date().toISOString(),
    held_at: null,
    yanked_at: null,
  }
  requirePublishable(store, published, replace)
  await keepArtifact(store, published.sha256, bytes)
  return addVersion(store, published, { name, isPrivate, replace })
}

/**
 * Publishes a folder. `leftOut` lists the paths that are not in the artifact. Throws as zipFolder, requireDeployable and
 * publishArchive do.
 */
export async function publishFolder(
  store: Store,
  folder: string,
  publication: Publication,
): Promise<PublishedVersion & { leftOut: string[] }> {
  const { bytes, leftOut } = zipFolder(folder)
  const { kind, slug, version } = publication
  await requireDeployable(bytes, { source: folder, kind, slug, version })
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

const PROJECT_PLAN = 'deployment/install.yaml'

/**
 * Identifies the version in an archive. The archive's plugin.yaml provides the facts that the publisher did not give.
 * Throws HubError 400 for an archive that hosts refuse, at least by default: one that is empty, too large, not a ZIP,
 * damaged, or unsafe to unpack, or has a plugin.yaml that clients cannot read. If no kind is given, throws HubError 400
 * for a project. Also throws as requirePluginKind, identifyPlugin and identifyService do. This check only helps
 * publishers: each host decides for itself what it accepts.
 */
export async function requireDeployable(bytes: Buffer, given: GivenId): Promise<IdentifiedVersion> {
  if (bytes.length === 0) throw new HubError(400, 'The archive is empty (0 bytes): pack it again.')
  if (bytes.length > MAX_ARCHIVE_BYTES)
    throw new HubError(
      400,
      `The archive has ${bytes.length} bytes, more than the ${MAX_ARCHIVE_BYTES} that hosts accept by default: remove some files.`,
    )
  const zip = await openZip(bytes)
  const tree = requireSafeTree(zip.entries, { flattens: true })
  const found = tree.fileAt(PLUGIN_YAML)
  if (found === undefined && given.kind === undefined && tree.fileAt(PROJECT_PLAN) !== undefined)
    throw new HubError(
      400,
      `${given.source} is a project, because it has ${PROJECT_PLAN}: publish its folder with "project publish --source".`,
    )
  if (found === undefined) return identifyService(given)
  requirePluginKind(given)
  requireYamlSize(PLUGIN_YAML, zip.sizeOf(found.name), MAX_PLUGIN_YAML_BYTES)
  return identifyPlugin(given, readPluginYaml(await zip.read(found.name)))
}

const MAX_SHOWN_CHARS = 60

/** The facts that the publisher gives about an archive. */
interface GivenId {
  /** The name that messages use for the origin of the archive, such as its folder. */
  readonly source: string
  readonly kind?: Kind | undefined
  readonly slug?: string | undefined
  readonly version?: string | undefined
}

/** The version under which an archive is published. */
export interface IdentifiedVersion extends VersionId {
  /** The slug from the name in plugin.yaml. Undefined for a service, or if that name is missing or yields no slug. */
  readonly ownSlug?: string | undefined
}

/** For an archive with a plugin.yaml: throws HubError 400 if the publisher gives it the kind service. */
function requirePluginKind({ source, kind }: GivenId): void {
  if (kind !== 'service') return
  throw new HubError(
    400,
    `${source} has a ${PLUGIN_YAML}, so it is a plugin, but --kind is service: remove --kind, or that file.`,
  )
}

/**
 * Identifies the version in an archive with this plugin.yaml, which provides the facts that the publisher did not give.
 * Throws HubError 400 if the file and the publisher name different versions, or if the file has a version that cannot
 * be published. Throws UsageError if neither gives a version, or neither gives a slug.
 */
function identifyPlugin(given: GivenId, described: PluginYaml): IdentifiedVersion {
  const version = versionIn(described, given.version)
  const ownSlug = slugOf(described.name ?? '')
  return { kind: 'plugin', slug: given.slug ?? slugIn(described), version, ownSlug }
}

/**
 * Identifies the version in an archive without a plugin.yaml. Only the publisher can name such a version. Throws
 * HubError 400 if the publisher does not give the kind service, and UsageError if the slug or the version is missing.
 */
function identifyService({ source, kind, slug, version }: GivenId): VersionId {
  if (kind !== 'service')
    throw new HubError(
      400,
      `${source} has no ${PLUGIN_YAML} at its root, which every plugin needs: add one, or publish a service with --kind service, --slug and --version.`,
    )
  if (slug && version) return { kind, slug, version }
  const missing = [...(slug ? [] : ['slug']), ...(version ? [] : ['version'])]
  const options = missing.map(name => `--${name}`).join(' and ')
  throw new UsageError(`A service has no file that gives its ${missing.join(' and ')}: add ${options}.`)
}

function versionIn({ version: packaged }: PluginYaml, given: string | undefined): string {
  if (packaged === undefined) {
    if (given) return given
    throw new UsageError(`${PLUGIN_YAML} has no version: add the line 'version: "1.0.0"', or name one with --version.`)
  }
  const { error } = newVersionSchema.safeParse(packaged)
  if (error !== undefined)
    throw new HubError(400, `The version ${shown(packaged)} in ${PLUGIN_YAML} ${error.issues[0]?.message}: correct it.`)
  if (given === undefined || withoutV(packaged) === withoutV(given)) return given ?? packaged
  throw new HubError(
    400,
    `The version in ${PLUGIN_YAML} is ${packaged}, but --version is ${given}: remove --version, or correct the file.`,
  )
}

function slugIn({ name }: PluginYaml): string {
  if (name === undefined)
    throw new UsageError(`${PLUGIN_YAML} has no name: add the line "name: my-plugin", or name the plugin with --slug.`)
  const slug = slugOf(name)
  if (slug !== undefined) return slug
  throw new UsageError(`The name ${shown(name)} in ${PLUGIN_YAML} cannot become a slug: name one with --slug.`)
}

/** Quotes the first 60 characters, and escapes or replaces characters that could control a terminal. */
function shown(text: string): string {
  return JSON.stringify(text.slice(0, MAX_SHOWN_CHARS)).replace(/\p{C}/gu, '?')
}
