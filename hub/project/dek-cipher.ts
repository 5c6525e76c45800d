import { createCipheriv, createDecipheriv, randomBytes, randomUUID } from 'node:crypto'
import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { HubError } from '../errors.ts'
import type { Store } from '../store.ts'

export const DEK_KEY_FILE = 'dek.key'
/** The size of the hub's own key. */
export const KEY_BYTES = 32
const NONCE_BYTES = 12
const TAG_BYTES = 16

/** The release that a data-encryption key (DEK) belongs to: decryption fails for any other release. */
export interface DekOwner {
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
