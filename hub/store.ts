import { closeSync, openSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { HubDatabase } from './database.ts'
import { HubError } from './errors.ts'
import { MARKETPLACE_SCHEMA } from './marketplace/schema.ts'
import { makeFolder } from './new-folder.ts'
import { PROJECT_SCHEMA } from './project/schema.ts'
import { inTransaction, SharedTransactions } from './transactions.ts'

export const DATABASE_FILE = 'hub.sqlite'

const SCHEMA_VERSION = 1
const BUSY_TIMEOUT_MS = 10_000

const HUB_SCHEMA = `
  CREATE TABLE IF NOT EXISTS settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
  ) STRICT;
  CREATE TABLE IF NOT EXISTS api_keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    kind TEXT,
    slug TEXT,
    created_at TEXT NOT NULL,
    last_used_at TEXT,
    revoked_at TEXT
  ) STRICT;
`

/** All data of the hub: a database and files in one folder. Only the hub's user can read them. */
export interface Store {
  readonly dataDir: string
  readonly db: DatabaseSync
  /** For writes that many requests make at once. */
  readonly shared: SharedTransactions
  close(): void
}

/**
 * Opens the data folder, and creates it if necessary. Several processes may open it at once: a writer waits up to 10 s
 * for another writer. Throws HubError 500 if the folder cannot be created, or if a newer hub has written it.
 */
export function openStore(dataDir: string): Store {
  const folder = resolve(dataDir)
  makeDataFolder(folder)
  const file = join(folder, DATABASE_FILE)
  closeSync(openSync(file, 'a', 0o600))
  const db = new HubDatabase(file, { timeout: BUSY_TIMEOUT_MS })
  try {
    prepareDatabase(db, folder)
  } catch (error) {
    db.close()
    throw error
  }
  return { dataDir: folder, db, shared: new SharedTransactions(db), close: () => db.close() }
}

function makeDataFolder(folder: string): void {
  try {
    makeFolder(join(folder, 'artifacts'), 0o700)
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException
    if (syscall === undefined) throw error
    throw new HubError(500, `${folder} cannot be the data folder of a hub (${code}): name another one with --data.`)
  }
}

function prepareDatabase(db: DatabaseSync, folder: string): void {
  db.exec('PRAGMA journal_mode = WAL')
  // A commit returns only when its data is on the disk.
  db.exec('PRAGMA synchronous = FULL')
  inTransaction({ db }, () => {
    const found = Number(db.prepare('PRAGMA user_version').get()?.['user_version'])
    if (found > SCHEMA_VERSION) {
      throw new HubError(500, `A newer hub wrote the data folder ${folder} (schema ${found}): update this hub.`)
    }
    db.exec(HUB_SCHEMA)
    db.exec(MARKETPLACE_SCHEMA)
    addHeldAt(db)
    db.exec(PROJECT_SCHEMA)
    db.exec(`PRAGMA user_version = ${SCHEMA_VERSION}`)
  })
}

/** Adds the column that older hubs, which could not hold a version back, did not have. */
function addHeldAt(db: DatabaseSync): void {
  const columns = db.prepare('PRAGMA table_info(versions)').all()
  if (!columns.some(({ name }) => name === 'held_at')) db.exec('ALTER TABLE versions ADD COLUMN held_at TEXT')
}
