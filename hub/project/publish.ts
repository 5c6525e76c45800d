import { createHash, createPublicKey, type KeyObject, verify } from 'node:crypto'
import { pipeline } from 'node:stream/promises'
import { createZstdDecompress } from 'node:zlib'
import { extract, type Header } from 'tar-stream'
import { z } from 'zod'
import { type ArchiveEntry, boundedTar, EntryList, requireSafeTree } from '../archive/entries.ts'
import { keepArtifact } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import { base64Schema, parseInput, projectIdSchema, projectVersionSchema, publicKeySchema } from '../names.ts'
import type { Store } from '../store.ts'
import { MAX_PLAN_BYTES, requireYamlSize } from '../yaml.ts'
import { addProjectVersion, findSame, type ProjectVersion } from './catalogue.ts'
import { decryptPieces, encryptDek, type Opened, piecesOf } from './encrypt.ts'
import { PLAN_PATH } from './source-tree.ts'

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

async function hashOf(bytes: Uint8Array): Promise<string> {
  const hash = createHash('sha256')
  for await (const piece of piecesOf(bytes)) hash.update(piece)
  return hash.digest('hex')
}

const MANIFEST = 'manifest.json'
const MAX_MANIFEST_BYTES = 1024 * 1024
const TYPES: ReadonlyMap<string, ArchiveEntry['type']> = new Map([
  ['file', 'file'],
  ['contiguous-file', 'file'],
  ['directory', 'directory'],
  ['symlink', 'symlink'],
])

const manifestSchema = z.object({
  format_version: z.literal('1'),
  project_id: z.string(),
  version: z.string(),
  plugins: z.array(z.unknown()).min(1),
  content_sha256: z.string(),
})

/**
 * Opens a sealed file whose signature and key match. Throws HubError 400 if hosts refuse its content, at least by
 * default. They refuse anything but a tar in one zstd stream, unsafe entries, and too many entries or bytes. They also
 * refuse a plan that is missing or too large, and a manifest that is missing or invalid, or names another project or
 * version. This check only helps publishers: each host decides for itself what it accepts. Keeps only the listing and
 * the manifest in memory.
 */
export async function requireDeployableProject({ bytes, release }: SealedRelease): Promise<void> {
  const { entries, sizes, manifest } = await readTar({ bytes, release })
  const tree = requireSafeTree(entries, { flattens: false })
  const plan = tree.fileAt(PLAN_PATH)
  if (plan === undefined) throw refused(`has no ${PLAN_PATH}`)
  requireYamlSize(PLAN_PATH, sizes.get(plan.name) ?? 0, MAX_PLAN_BYTES)
  if (manifest === undefined) throw refused(`has no ${MANIFEST} at its root`)
  requireManifestOf(release, manifest)
}

interface Content {
  readonly entries: readonly ArchiveEntry[]
  /** The size of each file in bytes, by name. */
  readonly sizes: ReadonlyMap<string, number>
  readonly manifest: string | undefined
}

async function readTar({ bytes, release }: SealedRelease): Promise<Content> {
  const decrypted = decryptPieces({ bytes, dek: Buffer.from(release.dek, 'base64') })
  const tar = extract()
  const unpacking = pipeline(decrypted, createZstdDecompress(), boundedTar, tar)
  // An error of the pipeline also ends the loop below.
  unpacking.catch(() => {})
  const list = new EntryList()
  const sizes = new Map<string, number>()
  let manifest: string | undefined
  try {
    for await (const entry of tar) {
      const found = entryOf(entry.header)
      const chunks: Uint8Array[] = []
      for await (const chunk of entry as AsyncIterable<Uint8Array>) if (found.name === MANIFEST) chunks.push(chunk)
      if (found.name === MANIFEST) manifest = Buffer.concat(chunks).toString('utf8')
      if (found.name === '') continue
      list.add(found)
      sizes.set(found.name, entry.header.size ?? 0)
    }
    await unpacking
  } catch (error) {
    throw error instanceof HubError ? error : refused('is not a single zstd stream of a complete tar file')
  }
  return { entries: list.entries, sizes, manifest }
}

/** Drops the `./` with which many programs begin each name. This leaves the entry of the root folder without a name. */
function entryOf({ name, type, linkname, size }: Header): ArchiveEntry {
  const plain = name.replace(/^(?:\.\/)+/, '').replace(/^\.$/, '')
  if (plain === MANIFEST && (size ?? 0) > MAX_MANIFEST_BYTES)
    throw refused(`has a ${MANIFEST} of more than ${MAX_MANIFEST_BYTES} bytes`)
  return { name: plain, type: TYPES.get(type ?? 'file') ?? 'other', target: linkname ?? '' }
}

function requireManifestOf({ project_id, version }: SealedRelease['release'], text: string): void {
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
