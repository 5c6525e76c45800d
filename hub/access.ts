import { createHash, randomBytes, randomInt, randomUUID, timingSafeEqual } from 'node:crypto'
import type { Context } from 'hono'
import { z } from 'zod'
import { HubError } from './errors.ts'
import type { ListingId } from './marketplace/catalogue.ts'
import { kindSchema, labelSchema, parseInput, slugSchema } from './names.ts'
import { inTransaction, type Store } from './store.ts'

/**
 * Returns the key sent in `X-API-Key` (contract 5.1). Throws HubError 401 if it is missing, unknown or revoked, and 403
 * for a publish key.
 */
export function requireKey(c: Context, store: Store): ApiKey {
  const value = c.req.header('x-api-key')
  if (!value) throw unauthorized('This route needs an API key in the X-API-Key header.')
  const key = useKey(store, value)
  if (key === undefined) throw unauthorized('The API key is unknown or revoked.')
  if (key.can_publish) throw new HubError(403, `The key ${key.prefix}... is a publish key, which can only publish.`)
  return key
}

/** True if the request has the admin token, or a key that may fetch the listing. Never throws for a wrong credential. */
export function maySee(c: Context, store: Store, { kind, slug }: ListingId): boolean {
  const token = bearerIn(c.req.header('authorization'))
  if (token !== undefined && isAdminToken(store, token)) return true
  const value = c.req.header('x-api-key')
  const key = value ? useKey(store, value) : undefined
  return key?.can_publish === false && (key.kind === null || (key.kind === kind && key.slug === slug))
}

/** Throws HubError 403 if the key is bound to another plugin or service. */
export function requireBinding(key: ApiKey, { kind, slug }: ListingId): void {
  if (key.kind === null || (key.kind === kind && key.slug === slug)) return
  throw new HubError(403, `The API key ${key.prefix}... is bound to the ${key.kind} ${key.slug}.`)
}

/**
 * Throws HubError 401 unless the request has, as `Authorization: Bearer`, the admin token or a publish key. Throws 403
 * for any other key, for a key of another plugin or service, and for a publish key that would replace a version.
 */
export function requirePublisher(c: Context, store: Store, wanted: ListingId & { readonly replace: boolean }): void {
  const token = bearerIn(c.req.header('authorization'))
  if (token === undefined)
    throw unauthorized(
      'Publishing needs a key from "keys create --publish", or the admin token, in the Authorization header, as a Bearer token.',
    )
  if (isAdminToken(store, token)) return
  const key = useKey(store, token)
  if (key === undefined) throw unauthorized('This is neither a publish key nor the admin token, or it was revoked.')
  if (!key.can_publish)
    throw new HubError(403, `The API key ${key.prefix}... cannot publish: create one with "keys create --publish".`)
  requireBinding(key, wanted)
  if (wanted.replace) throw new HubError(403, 'Only the admin token may replace a version: raise the version.')
}

/** Throws HubError 401 unless the request has the admin token as `Authorization: Bearer`. */
export function requireAdmin(c: Context, store: Store): void {
  const missing = 'This route needs the admin token in the Authorization header, as a Bearer token.'
  requireToken(store, c.req.header('authorization'), missing)
}

/**
 * Works like requireAdmin, but also accepts the token as a password, so that a browser can ask its user for the token.
 * No route that changes anything may use this function: a browser that knows the password also sends it with requests
 * that another site triggers.
 */
export function requireAdminToLook(c: Context, store: Store): void {
  const sent = c.req.header('authorization')
  const missing = 'This page needs the admin token: enter it as the password, with any user name.'
  requireToken(store, asBearer(sent) ?? sent, missing)
}

function requireToken(store: Store, authorization: string | undefined, missing: string): void {
  const token = bearerIn(authorization)
  if (token === undefined) throw unauthorized(missing)
  if (!isAdminToken(store, token)) throw unauthorized('The admin token is wrong.')
}

function bearerIn(authorization = ''): string | undefined {
  return /^Bearer +(\S+)$/i.exec(authorization)?.[1]
}

/** A browser can only ask for a name and a password, which it sends as `Basic base64(name:password)`. */
function asBearer(authorization = ''): string | undefined {
  const [, value = ''] = /^Basic +(\S+)$/i.exec(authorization) ?? []
  const [, password] = /^[^:]*:(.+)$/.exec(Buffer.from(value, 'base64').toString()) ?? []
  return password === undefined ? undefined : `Bearer ${password}`
}

function unauthorized(message: string): HubError {
  return new HubError(401, message)
}

const SETTING = 'admin_token_hash'
const MIN_GIVEN_CHARS = 16

/** Creates the admin token, to be shown once. Returns undefined if the data folder already has one. */
export function ensureAdminToken(store: Store): string | undefined {
  return inTransaction(store, () => (readHash(store) === undefined ? renewAdminToken(store) : undefined))
}

/** Creates a new random admin token. The old one stops working at once, even on a running hub. */
export function renewAdminToken(store: Store): string {
  const token = newCredential('admin')
  saveHash(store, token)
  return token
}

/** Makes the given token the admin token. Throws HubError 400 if it has fewer than 16 characters. */
export function setAdminToken(store: Store, token: string): void {
  if (token.length < MIN_GIVEN_CHARS) {
    throw new HubError(
      400,
      `The admin token must have at least ${MIN_GIVEN_CHARS} characters, but has ${token.length}.`,
    )
  }
  saveHash(store, token)
}

function isAdminToken(store: Store, token: string): boolean {
  const hash = readHash(store)
  return hash !== undefined && matchesHash(token, hash)
}

function readHash(store: Store): string | undefined {
  const value = store.db.prepare('SELECT value FROM settings WHERE name = ?').get(SETTING)?.['value']
  return typeof value === 'string' ? value : undefined
}

function saveHash(store: Store, token: string): void {
  store.db.prepare('INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)').run(SETTING, hashCredential(token))
}

const PREFIX_CHARS = 10

/**
 * The key reports to the fleet of `owner` (default: the key's name). `kind` and `slug` bind it to one listing. A key
 * that `can_publish` can do nothing but publish that listing.
 */
export const keyRequestSchema = z
  .object({
    name: labelSchema,
    owner: labelSchema.optional(),
    kind: kindSchema.optional(),
    slug: slugSchema.optional(),
    can_publish: z.boolean().default(false),
  })
  .refine(request => (request.kind === undefined) === (request.slug === undefined), {
    path: ['kind'],
    error: 'must be given together with slug, or not at all',
  })
  .refine(request => request.slug !== undefined || !request.can_publish, {
    path: ['slug'],
    error: 'must be given for a key that can publish',
  })
export type KeyRequest = z.input<typeof keyRequestSchema>

const apiKeySchema = z.object({
  id: z.string(),
  name: z.string(),
  prefix: z.string(),
  owner: z.string(),
  kind: kindSchema.nullable(),
  slug: z.string().nullable(),
  can_publish: z.number().transform(value => value === 1),
  is_active: z.number().transform(value => value === 1),
  created_at: z.string(),
  last_used_at: z.string().nullable(),
})
export type ApiKey = z.infer<typeof apiKeySchema>

/** `key` is the only copy of the value. */
interface IssuedKey {
  readonly key: string
  readonly record: ApiKey
}

const COLUMNS =
  'id, name, prefix, owner, kind, slug, can_publish, revoked_at IS NULL AS is_active, created_at, last_used_at'

/**
 * Creates an API key. The hub stores only its hash and its first 10 characters. Throws HubError 400 for a bad request.
 */
export function createKey(store: Store, request: KeyRequest): IssuedKey {
  const { name, owner = name, kind = null, slug = null, can_publish } = parseInput(keyRequestSchema, request)
  const key = newCredential(can_publish ? 'publish' : 'hub')
  const id = randomUUID()
  const [prefix, hash, created_at] = [key.slice(0, PREFIX_CHARS), hashCredential(key), new Date().toISOString()]
  store.db
    .prepare(
      `INSERT INTO api_keys (id, name, prefix, hash, owner, kind, slug, can_publish, created_at)
       VALUES (:id, :name, :prefix, :hash, :owner, :kind, :slug, :can_publish, :created_at)`,
    )
    .run({ id, name, prefix, hash, owner, kind, slug, can_publish: Number(can_publish), created_at })
  return { key, record: readKey(store, id) }
}

export function listKeys(store: Store): ApiKey[] {
  const rows = store.db.prepare(`SELECT ${COLUMNS} FROM api_keys ORDER BY rowid`).all()
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
function useKey(store: Store, value: string): ApiKey | undefined {
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

const NOTED_EVERY_MS = 60_000

interface UsedKey {
  readonly id: string
  readonly last_used_at: string | null
}

/**
 * Notes that a key was used, at most once a minute: each note waits for the disk, and hosts share keys. If the note
 * cannot be written, for example on a full disk, the request still succeeds.
 */
export function noteUse({ db }: Store, table: 'api_keys' | 'project_keys', { id, last_used_at }: UsedKey): void {
  const now = Date.now()
  const isNoted = last_used_at !== null && Math.abs(now - Date.parse(last_used_at)) < NOTED_EVERY_MS
  if (isNoted) return
  try {
    db.prepare(`UPDATE ${table} SET last_used_at = ? WHERE id = ?`).run(new Date(now).toISOString(), id)
  } catch {
    // The next use tries again.
  }
}

const CREDENTIAL_BYTES = 32
const ALPHANUMERICS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'

/**
 * Creates a random credential of 256 bits: the label, then base64url. A plain SHA-256 of the credential is safe to
 * store, because nobody can guess so many bits.
 */
export function newCredential(label: string): string {
  return `${label}_${randomBytes(CREDENTIAL_BYTES).toString('base64url')}`
}

/** Random letters and digits, for an id that need not be secret. */
export function randomAlphanumerics(length: number): string {
  return Array.from({ length }, () => ALPHANUMERICS.charAt(randomInt(ALPHANUMERICS.length))).join('')
}

export function hashCredential(credential: string): string {
  return createHash('sha256').update(credential).digest('hex')
}

/** Compares a credential with a stored hash in constant time. */
function matchesHash(credential: string, hash: string): boolean {
  const expected = Buffer.from(hash, 'hex')
  const actual = Buffer.from(hashCredential(credential), 'hex')
  return expected.length === actual.length && timingSafeEqual(expected, actual)
}
