import { z } from 'zod'
import { hashCredential, newCredential } from '../credentials.ts'
import { HubError } from '../errors.ts'
import type { Store } from '../store.ts'
import { type ProjectKey, readProjectKey, useProjectKey } from './project-keys.ts'

export const TOKEN_LIFE_SECONDS = 3600

const tokenRowSchema = z.object({ devkey_id: z.string(), expires_at_ms: z.number() })

/**
 * Exchanges a dev key for an access token of one hour, of which only a hash is stored (contract 5.2, rule 1). Throws
 * HubError 401 for an unknown or revoked dev key, and 403 for one of another project.
 */
export function issueToken(store: Store, xdevkey: string, projectId: string, now: number): string {
  const devkey = useProjectKey(store, 'devkey', xdevkey)
  if (devkey?.is_active !== true) throw new HubError(401, 'The dev key is unknown or revoked.')
  requireProject(devkey, projectId, 'dev key')
  const token = newCredential('access')
  store.db.prepare('DELETE FROM access_tokens WHERE expires_at_ms <= ?').run(now)
  store.db
    .prepare('INSERT INTO access_tokens (hash, devkey_id, expires_at_ms) VALUES (?, ?, ?)')
    .run(hashCredential(token), devkey.id, now + TOKEN_LIFE_SECONDS * 1000)
  return token
}

/**
 * The dev key that a token was exchanged for (contract 5.2, rule 2). Throws HubError 401 when the token is unknown or
 * expired, or its dev key has been revoked since.
 */
export function useToken(store: Store, token: string, now: number): ProjectKey {
  const found = store.db
    .prepare('SELECT devkey_id, expires_at_ms FROM access_tokens WHERE hash = ?')
    .get(hashCredential(token))
  const row = tokenRowSchema.optional().parse(found)
  if (row === undefined || row.expires_at_ms <= now) throw new HubError(401, 'The access token is unknown or expired.')
  const devkey = readProjectKey(store, row.devkey_id)
  if (!devkey.is_active) throw new HubError(401, 'The dev key that this access token belongs to was revoked.')
  return devkey
}

/** Throws HubError 403 when the key is bound to another project. */
export function requireProject(key: ProjectKey, projectId: string, what: string): void {
  if (key.project_id === projectId) return
  throw new HubError(403, `The ${what} belongs to the project ${key.project_id}, not to ${JSON.stringify(projectId)}.`)
}
