import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
} from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type Pack, pack } from 'tar-stream'
import { z } from 'zod'
import { HubError } from '../errors.ts'
import { readPieces, unreadable, writeNewFile } from '../files.ts'
import { labelSchema, parseInput, pluginsDirnameSchema, projectIdSchema, projectVersionSchema } from '../names.ts'
import { DEK_BYTES, encryptTar, NONCE_BYTES } from './encrypt.ts'
import { buildManifest, comparePaths, type Manifest } from './manifest.ts'
import { type PartSources, readPartSources, type SourceRegistry, withStubs } from './part-sources.ts'
import { type PlannedFiles, parsePlan, requireWorkablePlan } from './plan.ts'
import type { SealedRelease } from './publish.ts'
import { type FileMember, findPluginsDirname, type Member, readSourceTree, type SourceTree } from './source-tree.ts'

const factsSchema = z.object({
  projectId: projectIdSchema.optional(),
  version: projectVersionSchema,
  projectName: labelSchema.optional(),
  pluginsDirname: pluginsDirnameSchema,
  builtAt: z.date().default(() => new Date()),
})

/**
 * Defaults: the plan's `project_id` for `projectId`, the project's id for `projectName`, the folder that
 * `findPluginsDirname` finds for `pluginsDirname`, and now for `builtAt`.
 */
export type SealOptions = Omit<z.input<typeof factsSchema>, 'pluginsDirname'> & {
  readonly pluginsDirname?: string | undefined
  /** The sources of parts, in addition to those that the project's own files name. */
  readonly sources?: SourceRegistry | undefined
  /** The folder with `plugins/`, `extensions/` and `deployment/install.yaml`. */
  readonly source: string
  /** An Ed25519 private key. */
  readonly signingKey: KeyObject
  /** Creates the DEK, then the nonce. Never use the same pair for different bytes. */
  readonly random?: (bytes: number) => Buffer
}

export interface SealedProject extends SealedRelease {
  readonly bytes: Buffer
  readonly manifest: Manifest
  /** Paths in the source folder that are not sealed. */
  readonly leftOut: readonly string[]
}

/**
 * Seals a source folder in the encrypted artifact format, and signs the sealed bytes (contract 5.2, rule 4). Seals only
 * a stub of each part that comes from elsewhere. Writes nothing into the folder. The same files, facts, key and random
 * bytes give the same sealed bytes. Throws HubError 400 for a wrong option, and if a file changes in the meantime. Also
 * throws as findPluginsDirname, readSourceTree, parsePlan, readPartSources, requireWorkablePlan and buildManifest do.
 */
export async function sealProject({
  source,
  signingKey,
  random = randomBytes,
  sources: registry,
  ...given
}: SealOptions): Promise<SealedProject> {
  const pluginsDirname = given.pluginsDirname ?? findPluginsDirname(source)
  const asked = parseInput(factsSchema, { ...given, pluginsDirname })
  const read = readSourceTree(source, asked.pluginsDirname)
  const plan = parsePlan(readFileSync(read.plan, 'utf8'))
  const projectId = asked.projectId ?? plan.project_id
  const facts = { ...asked, projectId, projectName: asked.projectName ?? projectId }
  const sources = readPartSources(plan, read, registry)
  const tree = withStubs(read, sources)
  requireWorkablePlan(plan, projectId, plannedFilesOf(tree, sources))
  const manifest = buildManifest(tree, { ...facts, sources })
  const members = [...tree.members.values()].sort((a, b) => comparePaths(a.path, b.path))
  const key = { dek: random(DEK_BYTES), nonce: random(NONCE_BYTES) }
  const manifestJson = `${JSON.stringify(manifest, null, 2)}\n`
  const content = { manifestJson, members, time: facts.builtAt }
  const bytes = await encryptTar({ bytes: await measureMembers(content), chunks: packMembers(content) }, key)
  const release = {
    project_id: projectId,
    version: facts.version,
    signature: sign(null, bytes, signingKey).toString('base64'),
    signer_public_key: signerPublicKey(signingKey),
    dek: key.dek.toString('base64'),
    content_sha256: manifest.content_sha256,
  }
  return { bytes, release, manifest, leftOut: tree.leftOut }
}

function plannedFilesOf(tree: SourceTree, sources: PartSources): PlannedFiles {
  const { members, pluginsDirname, plugins, extensions, leftOut } = tree
  const isLeftOut = (path: string): boolean => leftOut.some(left => path === left || path.startsWith(`${left}/`))
  return {
    ...{ pluginsDirname, plugins, extensions, sourced: new Set(sources.keys()) },
    isFile: path => members.get(path)?.type === 'file',
    absence: path =>
      isLeftOut(path) ? 'sealing leaves out' : members.has(path) ? 'is not a regular file' : 'does not exist',
  }
}

const RAW_BYTES = 32
const PKCS8_ED25519_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex')

/** Writes a new Ed25519 key as PKCS #8 PEM, mode 0600. Throws HubError 400 if the file exists or cannot be written. */
export function createSigningKey(path: string): KeyObject {
  const { privateKey } = generateKeyPairSync('ed25519')
  writeNewFile(path, privateKey.export({ format: 'pem', type: 'pkcs8' }), 0o600)
  return privateKey
}

/**
 * Reads an Ed25519 private key: PEM without a passphrase, or its 32 raw bytes. Throws HubError 400 if the file cannot be
 * read or is neither.
 */
export function readSigningKey(path: string): KeyObject {
  const bytes = readKeyFile(path)
  try {
    const key =
      bytes.length === RAW_BYTES
        ? createPrivateKey({ key: Buffer.concat([PKCS8_ED25519_PREFIX, bytes]), format: 'der', type: 'pkcs8' })
        : createPrivateKey(bytes)
    if (key.asymmetricKeyType === 'ed25519') return key
  } catch {}
  throw new HubError(
    400,
    `The file ${path} is neither an Ed25519 private key in PEM without a passphrase nor the 32 raw bytes of one: create one with "project keygen --out FILE".`,
  )
}

function readKeyFile(path: string): Buffer {
  try {
    return readFileSync(path)
  } catch (error) {
    throw new HubError(
      400,
      `The signing key ${path} ${unreadable(error, 'create one with "project keygen --out FILE"')}.`,
    )
  }
}

/** The raw 32 bytes of the key's public half, in base64 (contract 2.2, signer_public_key). */
export function signerPublicKey(key: KeyObject): string {
  return createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(-RAW_BYTES).toString('base64')
}

const BLOCK_BYTES = 512

interface TarContent {
  readonly manifestJson: string
  readonly members: Iterable<Member>
  /** The modification time of every entry. */
  readonly time: Date
}

/**
 * Packs `manifest.json`, and then the members in their order, as a tar. The same content gives the same bytes: every
 * entry has the same time, the owner 0, and the mode 0644 or 0755. The stream fails with HubError 400 if a file has
 * changed.
 */
export function packMembers(content: TarContent): AsyncIterable<Uint8Array> {
  return packEntries(entriesOf(content))
}

/** Returns the size in bytes of the tar that packMembers makes of the content. Reads no file. */
async function measureMembers(content: TarContent): Promise<number> {
  const entries = [...entriesOf(content)]
  let bytes = entries.reduce((sum, { size }) => sum + Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES, 0)
  const headers = entries.map(entry => ({ ...entry, size: 0, pieces: [] }))
  for await (const chunk of packEntries(headers)) bytes += chunk.length
  return bytes
}

interface Entry {
  readonly header: Omit<Parameters<Pack['entry']>[0], 'size'>
  readonly size: number
  readonly pieces: Iterable<Buffer>
}

function* entriesOf({ manifestJson, members, time }: TarContent): Generator<Entry> {
  const manifest = Buffer.from(manifestJson)
  const header = { name: 'manifest.json', mode: 0o644, mtime: time }
  yield { header, size: manifest.length, pieces: [manifest] }
  for (const member of members) yield entryOf(member, time)
}

function entryOf(member: Member, mtime: Date): Entry {
  const header = { name: member.path, type: member.type, mode: modeOf(member), mtime }
  switch (member.type) {
    case 'file':
      return { header, size: member.size, pieces: readUnchanged(member) }
    case 'symlink':
      return { header: { ...header, linkname: member.target }, size: 0, pieces: [] }
    case 'directory':
      return { header, size: 0, pieces: [] }
  }
}

async function* packEntries(entries: Iterable<Entry>): AsyncGenerator<Uint8Array> {
  const tar = pack()
  const chunks = (tar as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]() as AsyncIterableIterator<Uint8Array>
  addEntries(tar, entries).catch(error => tar.destroy(error))
  yield* chunks
}

async function addEntries(tar: Pack, entries: Iterable<Entry>): Promise<void> {
  for (const entry of entries) await addEntry(tar, entry)
  tar.finalize()
}

/**
 * Waits until the entry is packed: if the tar failed while an entry was pending, no code would handle the error of that
 * entry.
 */
async function addEntry(tar: Pack, { header, size, pieces }: Entry): Promise<void> {
  const packed = Promise.withResolvers<void>()
  const entry = tar.entry({ ...header, size, uid: 0, gid: 0 }, error =>
    error ? packed.reject(error) : packed.resolve(),
  )
  entry.on('error', packed.reject)
  try {
    for (const piece of pieces) if (!entry.write(piece)) await once(entry, 'drain')
    entry.end(null)
  } catch (error) {
    entry.destroy(error as Error)
  }
  await packed.promise
}

function modeOf(member: Member): number {
  return member.type === 'directory' || (member.type === 'file' && member.isExecutable) ? 0o755 : 0o644
}

function* readUnchanged({ source, path, sha256, size }: FileMember): Generator<Buffer> {
  const hash = createHash('sha256')
  let length = 0
  for (const piece of readPieces(source)) {
    length += piece.length
    if (length > size) break
    hash.update(piece)
    yield piece
  }
  if (hash.digest('hex') !== sha256)
    throw new HubError(400, `${path} changed while it was being sealed: seal the project again.`)
}
