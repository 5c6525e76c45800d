import { hashCredential, matchesHash, newCredential } from './credentials.ts'
import { HubError } from './errors.ts'
import type { Store } from './store.ts'
import { inTransaction } from './transactions.ts'

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

export function isAdminToken(store: Store, token: string): boolean {
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
