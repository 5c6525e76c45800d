import { createHash, createPublicKey, type KeyObject, verify } from 'node:crypto'
import { z } from 'zod'
import { keepArtifact } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import { parseInput } from '../names.ts'
import type { Store } from '../store.ts'
import { addProjectVersion, findSame, type ProjectVersion } from './catalogue.ts'
import { encryptDek } from './dek-cipher.ts'
import { decryptPieces, type Opened, piecesOf } from './encrypt.ts'
import { base64Schema, projectIdSchema, projectVersionSchema, publicKeySchema } from './names.ts'

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
