import { createCipheriv, createDecipheriv, randomBytes, randomUUID } from 'node:crypto'
import { createWriteStream, linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { constants, createZstdCompress } from 'node:zlib'
import { PIECE_BYTES, piecesOf } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import type { Store } from '../store.ts'

export const DEK_BYTES = 32
export const NONCE_BYTES = 12
const TAG_BYTES = 16
const ZSTD_LEVEL = 3

/** A key and its nonce. Never use the pair for different bytes. */
interface OneTimeKey {
  readonly dek: Buffer
  readonly nonce: Buffer
}

/** A tar and its length. Clients that unpack in one call need the length in the header of the zstd frame. */
interface Tar {
  readonly bytes: number
  readonly chunks: AsyncIterable<Uint8Array>
}

/**
 * Encrypts the tar in the artifact format: a 12-byte nonce, the ciphertext, and a 16-byte tag. The plaintext is one
 * zstd frame that declares its content size; the cipher is AES-256-GCM without associated data. Throws if the tar's
 * chunks do not have the length that the tar declares. To hold only one copy in memory, first writes to a private
 * temporary file, which contains only ciphertext and is removed.
 */
export async function encryptTar(tar: Tar, key: OneTimeKey): Promise<Buffer> {
  const folder = await mkdtemp(join(tmpdir(), 'seal-'))
  const file = join(folder, 'sealed')
  try {
    const sealed = createWriteStream(file, { flags: 'wx', mode: 0o600, highWaterMark: PIECE_BYTES })
    await pipeline(inPieces(tar.chunks), compression(tar.bytes), source => encrypt(source, key), sealed)
    return await readFile(file)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** A sealed file and the key that opens it. */
export interface Opened {
  readonly bytes: Uint8Array
  readonly dek: Buffer
}

/**
 * Decrypts in pieces, and lets the event loop run between them. Throws if the key or any piece is wrong, but perhaps
 * only at the end: do not trust any piece before that.
 */
export async function* decryptPieces({ bytes, dek }: Opened): AsyncGenerator<Buffer> {
  const nonce = bytes.subarray(0, NONCE_BYTES)
  const decipher = createDecipheriv('aes-256-gcm', dek, nonce, { authTagLength: TAG_BYTES })
  decipher.setAuthTag(bytes.subarray(-TAG_BYTES))
  for await (const piece of piecesOf(bytes.subarray(NONCE_BYTES, -TAG_BYTES))) yield decipher.update(piece)
  yield decipher.final()
}

function compression(bytes: number) {
  const params = { [constants.ZSTD_c_compressionLevel]: ZSTD_LEVEL, [constants.ZSTD_c_checksumFlag]: 1 }
  return createZstdCompress({ chunkSize: PIECE_BYTES, params, pledgedSrcSize: bytes })
}

/** Joins the 512-byte pieces of a tar with many small files, because each piece would cost a call to the compressor. */
async function* inPieces(source: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  let waiting: Uint8Array[] = []
  let length = 0
  for await (const chunk of source) {
    waiting.push(chunk)
    length += chunk.length
    if (length < PIECE_BYTES) continue
    yield Buffer.concat(waiting)
    waiting = []
    length = 0
  }
  if (length > 0) yield Buffer.concat(waiting)
}

async function* encrypt(source: AsyncIterable<Buffer>, { dek, nonce }: OneTimeKey): AsyncGenerator<Buffer> {
  const cipher = createCipheriv('aes-256-gcm', dek, nonce, { authTagLength: TAG_BYTES })
  yield nonce
  for await (const chunk of source) yield cipher.update(chunk)
  yield cipher.final()
  yield cipher.getAuthTag()
}

export const DEK_KEY_FILE = 'dek.key'
/** The size of the hub's own key. */
export const KEY_BYTES = 32

/** The release that a data-encryption key (DEK) belongs to: decryption fails for any other release. */
interface DekOwner {
  readonly project_id: string
  readonly version: string
  readonly signature: string
}

/**
 * Encrypts a DEK for the database under the hub's own key, so that a copy of the database alone opens no artifact. The
 * hub's key is in the file dek.key (mode 0600) next to the database. This function creates the key if necessary.
 */
export function encryptDek(store: Store, owner: DekOwner, dek: Uint8Array): Buffer {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', ensureHubKey(store), nonce, { authTagLength: TAG_BYTES })
  cipher.setAAD(associatedData(owner))
  return Buffer.concat([nonce, cipher.update(dek), cipher.final(), cipher.getAuthTag()])
}

/** Throws HubError 500 if the hub's own key is missing or is not the one that encrypted the DEK. */
export function decryptDek(store: Store, owner: DekOwner, encrypted: Uint8Array): Buffer {
  const key = readHubKey(store)
  try {
    const nonce = encrypted.subarray(0, NONCE_BYTES)
    const decipher = createDecipheriv('aes-256-gcm', key ?? '', nonce, { authTagLength: TAG_BYTES })
    decipher.setAAD(associatedData(owner))
    decipher.setAuthTag(encrypted.subarray(-TAG_BYTES))
    return Buffer.concat([decipher.update(encrypted.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()])
  } catch {
    throw new HubError(
      500,
      `The key of ${owner.project_id} ${owner.version} cannot be decrypted, because ${join(store.dataDir, DEK_KEY_FILE)} is ${key === undefined ? 'missing' : 'not the key that encrypted it'}: restore that file.`,
    )
  }
}

function associatedData({ project_id, version, signature }: DekOwner): Buffer {
  return Buffer.from(JSON.stringify([project_id, version, signature]))
}

function readHubKey(store: Store): Buffer | undefined {
  try {
    return readFileSync(join(store.dataDir, DEK_KEY_FILE))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** If several processes create the key at once, only one succeeds in linking its complete file; all read that file. */
function ensureHubKey(store: Store): Buffer {
  const existing = readHubKey(store)
  if (existing !== undefined) return existing
  const temporary = join(store.dataDir, `${DEK_KEY_FILE}.${randomUUID()}.tmp`)
  try {
    writeFileSync(temporary, randomBytes(KEY_BYTES), { mode: 0o600, flag: 'wx', flush: true })
    linkSync(temporary, join(store.dataDir, DEK_KEY_FILE))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    rmSync(temporary, { force: true })
  }
  return readFileSync(join(store.dataDir, DEK_KEY_FILE))
}
