import { createHash, createPublicKey, type KeyObject, verify } from 'node:crypto'
import { pipeline } from 'node:stream/promises'
import { createZstdDecompress } from 'node:zlib'
import { extract, type Header } from 'tar-stream'
import { z } from 'zod'
import { type ArchiveEntry, boundedTar, EntryList, requireSafeTree } from '../archive/entries.ts'
import { hashOf, keepArtifact } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import { PLUGIN_YAML, readPluginYaml } from '../marketplace/plugin-yaml.ts'
import {
  base64Schema,
  parseInput,
  partIdSchema,
  pluginsDirnameSchema,
  projectIdSchema,
  projectVersionSchema,
  publicKeySchema,
  versionSchema,
} from '../names.ts'
import type { Store } from '../store.ts'
import { MAX_PLAN_BYTES, MAX_PLUGIN_YAML_BYTES, requireYamlSize } from '../yaml.ts'
import { addProjectVersion, findSame, type ProjectVersion } from './catalogue.ts'
import { decryptPieces, encryptDek, type Opened } from './encrypt.ts'
import { comparePaths } from './manifest.ts'
import { requireFixedSource } from './part-sources.ts'
import { type PlannedFiles, parsePlan, requireWorkablePlan } from './plan.ts'
import { DEFAULT_PLUGINS_DIRNAME, PLAN_PATH } from './source-tree.ts'

const SPKI_ED25519_PREFIX = Buffer.from('302a300506032b6570032100', 'hex')

export const releaseSchema = z.object({
  project_id: projectIdSchema,
  version: projectVersionSchema,
  signature: base64Schema(64),
  signer_public_key: publicKeySchema,
  dek: base64Schema(32),
  /** The digest in the manifest. Other hubs require it; this hub only checks its form. */
  content_sha256: z
    .string()
    .regex(/^[0-9a-f]{64}$/, { error: 'must be 64 hex digits' })
    .optional(),
})

/** The description of a sealed file, including its key (DEK); binary fields are base64. */
export type Release = z.infer<typeof releaseSchema>

/** A sealed file with its release: everything that publishing needs. */
export interface SealedRelease {
  readonly bytes: Uint8Array
  readonly release: Release
}

/**
 * Publishes a sealed file unchanged, with its DEK encrypted under the hub's own key. Publishing the same file again
 * with the same signature only stores the bytes again. Throws HubError 400 if a field is wrong, if the Ed25519
 * signature does not match the whole file (contract 5.2, rule 4), or if the DEK does not open the file. Throws 409 if
 * the version is already published with different bytes or another signature, or if the signature already belongs to a
 * different version. `inspect` sees a file that is not published yet, and may throw to refuse it.
 */
export async function publishProject(
  store: Store,
  { bytes, release }: SealedRelease,
  inspect: (sealed: SealedRelease) => Promise<void> = async () => {},
): Promise<ProjectVersion> {
  const { dek, content_sha256: _, ...fields } = parseInput(releaseSchema, release)
  await requireSignature(bytes, fields)
  await requireOpens({ bytes, dek: Buffer.from(dek, 'base64') })
  const version: ProjectVersion = {
    ...fields,
    sha256: await hashOf(bytes),
    size: bytes.length,
    published_at: new Date().toISOString(),
    revoked_at: null,
  }
  if (findSame(store, version) === undefined) await inspect({ bytes, release })
  await keepArtifact(store, version.sha256, bytes)
  return addProjectVersion(store, version, encryptDek(store, version, Buffer.from(dek, 'base64')))
}

async function requireSignature(
  bytes: Uint8Array,
  release: Pick<Release, 'signature' | 'signer_public_key'>,
): Promise<void> {
  const der = Buffer.concat([SPKI_ED25519_PREFIX, Buffer.from(release.signer_public_key, 'base64')])
  const key = createPublicKey({ key: der, format: 'der', type: 'spki' })
  if (await isSigned(bytes, key, Buffer.from(release.signature, 'base64'))) return
  throw new HubError(400, 'signature: must be the Ed25519 signature of the whole sealed file by signer_public_key')
}

/** Runs in the thread pool, because Ed25519 needs the whole file at once. */
function isSigned(bytes: Uint8Array, key: KeyObject, signature: Buffer): Promise<boolean> {
  return new Promise((resolve, reject) => {
    verify(null, bytes, key, signature, (error, matches) => (error === null ? resolve(matches) : reject(error)))
  })
}

/** Finds a wrong key now, rather than in the first deployment. */
async function requireOpens(opened: Opened): Promise<void> {
  try {
    for await (const _ of decryptPieces(opened));
  } catch {
    throw new HubError(400, 'dek: must be the key that encrypted the sealed file')
  }
}

const MANIFEST = 'manifest.json'
const MAX_MANIFEST_BYTES = 1024 * 1024
const TYPES: ReadonlyMap<string, ArchiveEntry['type']> = new Map([
  ['file', 'file'],
  ['contiguous-file', 'file'],
  ['directory', 'directory'],
  ['symlink', 'symlink'],
])

const MAX_PARTS = 1000
const sha256Schema = z.string().regex(/^[0-9a-f]{64}$/i)
const lineSchema = z.string().regex(/^[^\p{Cc}]{1,256}$/u)
const namesSchema = z.array(lineSchema).max(MAX_PARTS).nullish()
const extensionSchema = z.object({
  id: partIdSchema,
  sha256: sha256Schema.nullish(),
  source: z.record(z.string(), z.unknown()).nullish(),
})
const pluginSchema = extensionSchema
  .extend({ version: versionSchema, environment: z.object({ required: namesSchema, optional: namesSchema }).nullish() })
  .refine(({ sha256, source }) => (sha256 ?? source ?? null) !== null, { path: ['sha256'] })

/** A manifest as hosts read it (docs/project-contract.md). */
const manifestSchema = z.object({
  format_version: z.literal('1'),
  project_id: z.string(),
  project_name: lineSchema,
  version: z.string(),
  built_at: z.iso.datetime({ offset: true, local: true }),
  plugins: z.array(pluginSchema).min(1).max(MAX_PARTS).refine(hasUniqueIds),
  extensions: z.array(extensionSchema).max(MAX_PARTS).refine(hasUniqueIds).nullish(),
  content_sha256: sha256Schema,
  plugins_dirname: pluginsDirnameSchema.nullish(),
})
type ReadManifest = z.output<typeof manifestSchema>

function hasUniqueIds(parts: readonly { readonly id: string }[]): boolean {
  return new Set(parts.map(({ id }) => id)).size === parts.length
}

/**
 * Opens a sealed file whose signature and key match. Throws HubError 400 if hosts refuse its content, at least by
 * default. They refuse anything but a tar in one zstd stream, unsafe entries, and too many entries or bytes. They also
 * refuse a manifest that is missing or invalid, that names another project or version, or whose digest the files do not
 * have, a plan that is missing, malformed or does not fit the files, and a plugin.yaml that cannot be read alike. This
 * check only helps publishers: each host decides for itself what it accepts. Keeps only the listing and `texts` in
 * memory.
 */
export async function requireDeployableProject({ bytes, release }: SealedRelease): Promise<void> {
  const content = await readTar({ bytes, release })
  const tree = requireSafeTree(content.entries, { flattens: false })
  if (tree.fileAt(PLAN_PATH)?.name !== PLAN_PATH) throw refused(`has no ${PLAN_PATH}`)
  requireYamlSize(PLAN_PATH, content.files.get(PLAN_PATH)?.size ?? 0, MAX_PLAN_BYTES)
  const text = content.texts.get(MANIFEST)?.toString('utf8')
  if (text === undefined) throw refused(`has no ${MANIFEST} at its root`)
  const manifest = readManifestOf(release, text)
  const digest = contentDigest(content, tree)
  if (digest !== manifest.content_sha256.toLowerCase())
    throw refused(`has files with the digest ${digest}, but a ${MANIFEST} with ${manifest.content_sha256}`)
  const files = plannedFilesOf(manifest, content)
  requireWorkablePlan(parsePlan(content.texts.get(PLAN_PATH)?.toString('utf8') ?? ''), release.project_id, files)
  for (const path of files.plugins) if (!files.sourced.has(path)) requirePluginYaml(`${path}/${PLUGIN_YAML}`, content)
}

interface Content {
  readonly entries: readonly ArchiveEntry[]
  /** The regular files, by name. */
  readonly files: ReadonlyMap<string, { readonly size: number; readonly sha256: string }>
  /** The manifest, the plan and the small files `plugin.yaml`, as far as they exist. */
  readonly texts: ReadonlyMap<string, Buffer>
}

function requirePluginYaml(path: string, { files, texts }: Content): void {
  requireYamlSize(path, files.get(path)?.size ?? 0, MAX_PLUGIN_YAML_BYTES)
  const bytes = texts.get(path)
  if (bytes === undefined) return
  try {
    readPluginYaml(bytes)
  } catch (error) {
    throw error instanceof HubError ? new HubError(error.status, `${path}: ${error.message}`) : error
  }
}

/** The tree digest (docs/files.md) of everything but the manifest. */
function contentDigest({ entries, files }: Content, { fileAt }: ReturnType<typeof requireSafeTree>): string {
  const lines = entries
    .filter(({ name, type }) => type !== 'directory' && name !== MANIFEST)
    .sort((a, b) => comparePaths(a.name, b.name))
    .flatMap(({ name }) => {
      const file = files.get(fileAt(name)?.name ?? '')
      return file === undefined ? [] : [`${name}:${file.sha256}`]
    })
  return createHash('sha256').update(lines.join('\n')).digest('hex')
}

/** Refuses an embedded part without a folder, and a source that could change. */
function plannedFilesOf(manifest: ReadManifest, { entries, files }: Content): PlannedFiles {
  const pluginsDirname = manifest.plugins_dirname ?? DEFAULT_PLUGINS_DIRNAME
  const sourced = new Set<string>()
  const pathsOf = (shelf: string, parts: ReadManifest['extensions']): string[] =>
    (parts ?? []).map(({ id, sha256, source }) => {
      const path = `${shelf}/${id}`
      if (source !== null && source !== undefined) {
        requireFixedSource(source, path, sha256 ?? undefined)
        sourced.add(path)
      } else if (!entries.some(({ name }) => name === path || name.startsWith(`${path}/`)))
        throw refused(`has no ${path}, which its ${MANIFEST} lists`)
      return path
    })
  const [plugins, extensions] = [pathsOf(pluginsDirname, manifest.plugins), pathsOf('extensions', manifest.extensions)]
  const absence = (): string => `is not among the parts and files of the sealed file`
  return { pluginsDirname, plugins, extensions, sourced, isFile: path => files.has(path), absence }
}

async function readTar({ bytes, release }: SealedRelease): Promise<Content> {
  const decrypted = decryptPieces({ bytes, dek: Buffer.from(release.dek, 'base64') })
  const tar = extract()
  const unpacking = pipeline(decrypted, createZstdDecompress(), boundedTar, tar)
  // An error of the pipeline also ends the loop below.
  unpacking.catch(() => {})
  const list = new EntryList()
  const files = new Map<string, { size: number; sha256: string }>()
  const texts = new Map<string, Buffer>()
  try {
    for await (const entry of tar) {
      const found = entryOf(entry.header)
      const { name, type } = found
      const size = entry.header.size ?? 0
      const isPluginYaml = name.endsWith(`/${PLUGIN_YAML}`) && size <= MAX_PLUGIN_YAML_BYTES && texts.size < MAX_PARTS
      const isText = name === MANIFEST || (name === PLAN_PATH && size <= MAX_PLAN_BYTES) || isPluginYaml
      const hash = createHash('sha256')
      const chunks: Uint8Array[] = []
      for await (const chunk of entry as AsyncIterable<Uint8Array>) {
        hash.update(chunk)
        if (isText) chunks.push(chunk)
      }
      if (name === '') continue
      if (isText) texts.set(name, Buffer.concat(chunks))
      list.add(found)
      if (type === 'file') files.set(name, { size, sha256: hash.digest('hex') })
    }
    await unpacking
  } catch (error) {
    throw error instanceof HubError ? error : refused('is not a single zstd stream of a complete tar file')
  }
  return { entries: list.entries, files, texts }
}

/** Drops the `./` with which many programs begin each name. This leaves the entry of the root folder without a name. */
function entryOf({ name, type, linkname, size }: Header): ArchiveEntry {
  const plain = name.replace(/^(?:\.\/)+/, '').replace(/^\.$/, '')
  if (plain === MANIFEST && (size ?? 0) > MAX_MANIFEST_BYTES)
    throw refused(`has a ${MANIFEST} of more than ${MAX_MANIFEST_BYTES} bytes`)
  return { name: plain, type: TYPES.get(type ?? 'file') ?? 'other', target: linkname ?? '' }
}

function readManifestOf({ project_id, version }: SealedRelease['release'], text: string): ReadManifest {
  const { success, data, error } = manifestSchema.safeParse(parseJson(text))
  if (!success)
    throw refused(
      `has a ${MANIFEST} that hosts cannot read (${error.issues[0]?.path.join('.') || 'not a JSON object'})`,
    )
  for (const [name, found, expected] of [
    ['project', data.project_id, project_id],
    ['version', data.version, version],
  ] as const)
    if (found !== expected)
      throw refused(`has the ${MANIFEST} of ${name} ${JSON.stringify(found.slice(0, 100))}, not ${expected}`)
  return data
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function refused(problem: string): HubError {
  return new HubError(
    400,
    `Hosts refuse this sealed file, because it ${problem}: correct that and seal the project again.`,
  )
}
