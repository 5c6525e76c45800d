import { z } from 'zod'
import { hashCredential, newCredential } from '../credentials.ts'
import { HubError } from '../errors.ts'
import type { Store } from '../store.ts'
import { KEY_TITLES, type ProjectKey, readProjectKey, useProjectKey } from './project-keys.ts'

export const TOKEN_LIFE_SECONDS = 3600

/** The store and the clock that access tokens and download tickets need. */
export interface TokenContext {
  readonly store: Store
  /** Milliseconds since 1970. */
  readonly now: () => number
}

export interface LogIn {
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
