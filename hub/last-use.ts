import type { Store } from './store.ts'

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
