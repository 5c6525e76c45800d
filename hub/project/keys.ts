import { randomUUID } from 'node:crypto'
import { z } from 'zod'
import { hashCredential, newCredential, noteUse } from '../access.ts'
import { HubError } from '../errors.ts'
import { labelSchema, parseInput, projectIdSchema } from '../names.ts'
import type { Store } from '../store.ts'
import { type ProjectVersion, type ProjectVersionId, readProjectVersion } from './catalogue.ts'

const PREFIX_CHARS = 10
const VALUE_LABEL = { devkey: 'devkey', publisher: 'devkey', credential: 'deploy' } as const

const purposeSchema = z.enum(['devkey', 'publisher', 'credential'])
/**
 * A `devkey` gets access tokens; a `publisher` is a dev key that can also publish; a `credential` is a deployment
 * credential, which releases DEKs (contract 5.2).
 */
export type Purpose = z.infer<typeof purposeSchema>

/** The name of each purpose in messages. */
export const KEY_TITLES = { devkey: 'dev key', publisher: 'dev key', credential: 'deployment credential' } as const

export const projectKeyRequestSchema = z.object({ name: labelSchema })

const issueSchema = projectKeyRequestSchema.extend({ project_id: projectIdSchema, purpose: purposeSchema })
type ProjectKeyRequest = z.input<typeof issueSchema>

const projectKeySchema = z.object({
  id: z.string(),
  purpose: purposeSchema,
  project_id: z.string(),
  name: z.string(),
  prefix: z.string(),
  is_active: z.number().transform(value => value === 1),
  created_at: z.string(),
  last_used_at: z.string().nullable(),
})
export type ProjectKey = z.infer<typeof projectKeySchema>

/** `value` is the only copy of the key. */
export interface IssuedProjectKey {
  readonly value: string
  readonly record: ProjectKey
}

const COLUMNS = 'id, purpose, project_id, name, prefix, revoked_at IS NULL AS is_active, created_at, last_used_at'

/**
 * Creates a dev key or deployment credential for one project. The hub stores only its hash and its first 10 characters.
 * The project need not have a version yet. Throws HubError 400 for a bad request.
 */
export function createProjectKey(store: Store, request: ProjectKeyRequest): IssuedProjectKey {
  const { project_id, purpose, name } = parseInput(issueSchema, request)
  const value = newCredential(VALUE_LABEL[purpose])
  const id = randomUUID()
  store.db
    .prepare(
      'INSERT INTO project_keys (id, purpose, project_id, name, prefix, hash, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)',
    )
    .run(id, purpose, project_id, name, value.slice(0, PREFIX_CHARS), hashCredential(value), new Date().toISOString())
  return { value, record: readProjectKey(store, id) }
}

export function listProjectKeys(store: Store): ProjectKey[] {
  const rows = store.db.prepare(`SELECT ${COLUMNS} FROM project_keys ORDER BY rowid`).all()
  return rows.map(row => projectKeySchema.parse(row))
}

/** Revokes a key: the hub refuses it and all of its access tokens at once. Throws HubError 404 for an unknown id. */
export function revokeProjectKey(store: Store, id: string): ProjectKey {
  store.db
    .prepare('UPDATE project_keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?')
    .run(new Date().toISOString(), id)
  return readProjectKey(store, id)
}

/** Revokes all current dev keys and deployment credentials of the project, and returns those that were active. */
export function revokeProject(store: Store, projectId: string): ProjectKey[] {
  const rows = store.db
    .prepare(`UPDATE project_keys SET revoked_at = ? WHERE project_id = ? AND revoked_at IS NULL RETURNING ${COLUMNS}`)
    .all(new Date().toISOString(), projectId)
  return rows.map(row => projectKeySchema.parse(row))
}

/**
 * Finds the key that has this value and one of these purposes, revoked or not, and notes that it was used. Returns
 * undefined if there is none. The lookup is by SHA-256, so its duration does not reveal how close a guess was.
 */
export function useProjectKey(store: Store, purposes: readonly Purpose[], value: string): ProjectKey | undefined {
  const isWanted = 'purpose IN (SELECT value FROM json_each(?))'
  const row = store.db
    .prepare(`SELECT ${COLUMNS} FROM project_keys WHERE hash = ? AND ${isWanted}`)
    .get(hashCredential(value), JSON.stringify(purposes))
  if (row === undefined) return undefined
  const key = projectKeySchema.parse(row)
  noteUse(store, 'project_keys', key)
  return key
}

/** Throws HubError 404 if there is no such key. */
export function readProjectKey(store: Store, id: string): ProjectKey {
  const row = store.db.prepare(`SELECT ${COLUMNS} FROM project_keys WHERE id = ?`).get(id)
  if (row === undefined) throw new HubError(404, `There is no key or credential with the id ${JSON.stringify(id)}.`)
  return projectKeySchema.parse(row)
}

export const TOKEN_LIFE_SECONDS = 3600

/** The store and the clock that access tokens and download tickets need. */
export interface TokenContext {
  readonly store: Store
  /** Milliseconds since 1970. */
  readonly now: () => number
}

interface LogIn {
  readonly xdevkey: string
  readonly project_id: string
}

const tokenRowSchema = z.object({ devkey_id: z.string(), expires_at_ms: z.number() })

/**
 * Exchanges a dev key for an access token that is valid for one hour (contract 5.2, rule 1). The hub stores only the
 * token's hash. Throws HubError 401 for an unknown or revoked dev key, and 403 for the dev key of another project.
 */
export async function issueToken({ store, now }: TokenContext, { xdevkey, project_id }: LogIn): Promise<string> {
  const devkey = useProjectKey(store, ['devkey', 'publisher'], xdevkey)
  if (devkey?.is_active !== true) throw new HubError(401, 'The dev key is unknown or revoked.')
  refuseOtherProject(devkey, project_id)
  const token = newCredential('access')
  await store.shared.run(() => {
    store.db.prepare('DELETE FROM access_tokens WHERE expires_at_ms <= ?').run(now())
    store.db
      .prepare('INSERT INTO access_tokens (hash, devkey_id, expires_at_ms) VALUES (?, ?, ?)')
      .run(hashCredential(token), devkey.id, now() + TOKEN_LIFE_SECONDS * 1000)
  })
  return token
}

/**
 * Returns the dev key behind an access token (contract 5.2, rule 2). Throws HubError 401 if the token is unknown or
 * expired, or if the dev key has been revoked since.
 */
export function useToken({ store, now }: TokenContext, token: string): ProjectKey {
  const found = store.db
    .prepare('SELECT devkey_id, expires_at_ms FROM access_tokens WHERE hash = ?')
    .get(hashCredential(token))
  const row = tokenRowSchema.optional().parse(found)
  if (row === undefined || row.expires_at_ms <= now())
    throw new HubError(401, 'The access token is unknown or expired.')
  const devkey = readProjectKey(store, row.devkey_id)
  if (!devkey.is_active) throw new HubError(401, 'The dev key of this access token was revoked.')
  return devkey
}

/** Throws HubError 403 if the key is bound to another project. */
export function refuseOtherProject({ purpose, project_id }: ProjectKey, wanted: string): void {
  if (project_id === wanted) return
  const title = KEY_TITLES[purpose]
  throw new HubError(403, `The ${title} belongs to the project ${project_id}, not to ${JSON.stringify(wanted)}.`)
}

const LABEL = 'download'
const TICKET_LIFE_SECONDS = 900

const ticketRowSchema = z.object({
  project_id: z.string(),
  version: z.string(),
  devkey_id: z.string(),
  expires_at_ms: z.number(),
})

/**
 * Creates the random part of a `download_url`, which allows the download of one version for 15 minutes. The URL
 * needs no other credential, because clients send none with it (contract 2.2). The hub stores only the part's hash.
 */
export async function issueTicket(
  { store, now }: TokenContext,
  devkey: ProjectKey,
  wanted: ProjectVersionId,
): Promise<string> {
  const ticket = newCredential(LABEL)
  const expiry = now() + TICKET_LIFE_SECONDS * 1000
  await store.shared.run(() => {
    store.db.prepare('DELETE FROM download_tickets WHERE expires_at_ms <= ?').run(now())
    store.db
      .prepare(
        'INSERT INTO download_tickets (hash, project_id, version, devkey_id, expires_at_ms) VALUES (?, ?, ?, ?, ?)',
      )
      .run(hashCredential(ticket), wanted.project_id, wanted.version, devkey.id, expiry)
  })
  return ticket
}

/**
 * Returns the version that a ticket leads to. Throws HubError 403 if the ticket is unknown or expired, or if the dev
 * key that requested it has been revoked. A revoked version is still served, but its key is not (contract 4.2).
 */
export function useTicket({ store, now }: TokenContext, ticket: string): ProjectVersion {
  const found = store.db
    .prepare('SELECT project_id, version, devkey_id, expires_at_ms FROM download_tickets WHERE hash = ?')
    .get(hashCredential(ticket))
  const row = ticketRowSchema.optional().parse(found)
  if (row === undefined || row.expires_at_ms <= now())
    throw new HubError(403, 'The download_url is unknown or expired: request the artifact again for a new one.')
  if (!readProjectKey(store, row.devkey_id).is_active)
    throw new HubError(403, 'The dev key that requested this download_url was revoked.')
  return readProjectVersion(store, row)
}
