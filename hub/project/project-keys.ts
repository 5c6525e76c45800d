import { randomUUID } from 'node:crypto'
import { z } from 'zod'
import { hashCredential, newCredential } from '../credentials.ts'
import { HubError } from '../errors.ts'
import { noteUse } from '../last-use.ts'
import { labelSchema, parseInput } from '../names.ts'
import type { Store } from '../store.ts'
import { projectIdSchema } from './names.ts'

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
export type ProjectKeyRequest = z.input<typeof issueSchema>

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
  const rows = store.db.prepare(`SELECT ${COLUMNS} FROM project_keys ORDER BY created_at, id`).all()
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
