import { z } from 'zod'
import { hashCredential, newCredential } from '../credentials.ts'
import { HubError } from '../errors.ts'
import type { TokenContext } from './access-tokens.ts'
import { type ProjectVersion, type ProjectVersionId, readProjectVersion } from './catalogue.ts'
import { type ProjectKey, readProjectKey } from './project-keys.ts'

const LABEL = 'download'
export const TICKET_LIFE_SECONDS = 900

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
