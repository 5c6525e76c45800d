import { randomUUID } from 'node:crypto'
import { z } from 'zod'
import { hashCredential, newCredential } from './credentials.ts'
import { HubError } from './errors.ts'
import { noteUse } from './last-use.ts'
import { kindSchema, labelSchema, parseInput, slugSchema } from './names.ts'
import type { Store } from './store.ts'

const LABEL = 'hub'
const PREFIX_CHARS = 10

/** The key reports to the fleet of `owner` (default: the key's name). `kind` and `slug` bind it to one listing. */
export const keyRequestSchema = z
  .object({
    name: labelSchema,
    owner: labelSchema.optional(),
    kind: kindSchema.optional(),
    slug: slugSchema.optional(),
  })
  .refine(request => (request.kind === undefined) === (request.slug === undefined), {
    path: ['kind'],
    error: 'must be given together with slug, or not at all',
  })
export type KeyRequest = z.input<typeof keyRequestSchema>

const apiKeySchema = z.object({
  id: z.string(),
  name: z.string(),
  prefix: z.string(),
  owner: z.string(),
  kind: kindSchema.nullable(),
  slug: z.string().nullable(),
  is_active: z.number().transform(value => value === 1),
  created_at: z.string(),
  last_used_at: z.string().nullable(),
})
export type ApiKey = z.infer<typeof apiKeySchema>

/** `key` is the only copy of the value. */
export interface IssuedKey {
  readonly key: string
  readonly record: ApiKey
}

const COLUMNS = 'id, name, prefix, owner, kind, slug, revoked_at IS NULL AS is_active, created_at, last_used_at'

/**
 * Creates an API key. The hub stores only its hash and its first 10 characters. Throws HubError 400 for a bad request.
 */
export function createKey(store: Store, request: KeyRequest): IssuedKey {
  const { name, owner = name, kind = null, slug = null } = parseInput(keyRequestSchema, request)
  const key = newCredential(LABEL)
  const id = randomUUID()
  store.db
    .prepare(
      'INSERT INTO api_keys (id, name, prefix, hash, owner, kind, slug, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
    )
    .run(id, name, key.slice(0, PREFIX_CHARS), hashCredential(key), owner, kind, slug, new Date().toISOString())
  return { key, record: readKey(store, id) }
}

export function listKeys(store: Store): ApiKey[] {
  const rows = store.db.prepare(`SELECT ${COLUMNS} FROM api_keys ORDER BY created_at, id`).all()
  return rows.map(row => apiKeySchema.parse(row))
}

/** Revokes a key: the hub refuses it at once. Throws HubError 404 if there is no key with this id. */
export function revokeKey(store: Store, id: string): ApiKey {
  store.db
    .prepare('UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?')
    .run(new Date().toISOString(), id)
  return readKey(store, id)
}

/**
 * Finds the active key with this value and notes that it was used. Returns undefined if there is none. The lookup is by
 * SHA-256, so its duration does not reveal how close a guess was.
 */
export function useKey(store: Store, value: string): ApiKey | undefined {
  const row = store.db
    .prepare(`SELECT ${COLUMNS} FROM api_keys WHERE hash = ? AND revoked_at IS NULL`)
    .get(hashCredential(value))
  if (row === undefined) return undefined
  const key = apiKeySchema.parse(row)
  noteUse(store, 'api_keys', key)
  return key
}

function readKey(store: Store, id: string): ApiKey {
  const row = store.db.prepare(`SELECT ${COLUMNS} FROM api_keys WHERE id = ?`).get(id)
  if (row === undefined) throw new HubError(404, `There is no API key with the id ${JSON.stringify(id)}.`)
  return apiKeySchema.parse(row)
}
