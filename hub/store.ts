import { closeSync, openSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { DatabaseSync, type StatementSync } from 'node:sqlite'
import { HubError } from './errors.ts'
import { makeFolder } from './files.ts'
import { MARKETPLACE_SCHEMA, PROJECT_SCHEMA } from './schema.ts'

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
    can_publish INTEGER NOT NULL DEFAULT 0,
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
    addColumn(db, 'versions', 'held_at', 'TEXT')
    addColumn(db, 'api_keys', 'can_publish', 'INTEGER NOT NULL DEFAULT 0')
    db.exec(PROJECT_SCHEMA)
    db.exec(`PRAGMA user_version = ${SCHEMA_VERSION}`)
  })
}

/** Adds a column that older hubs did not have. */
function addColumn(db: DatabaseSync, table: string, column: string, type: string): void {
  const columns = db.prepare(`PRAGMA table_info(${table})`).all()
  if (!columns.some(({ name }) => name === column)) db.exec(`ALTER TABLE ${table} ADD COLUMN ${column} ${type}`)
}

/**
 * The hub has fewer fixed statements. The fleet page adds others, which depend on the number of words in its filter.
 */
const MOST_KEPT = 100

/** Keeps compiled statements, because compiling a short statement takes longer than running it. */
export class HubDatabase extends DatabaseSync {
  readonly #kept = new Map<string, StatementSync>()

  /** Returns the same statement for the same text, so read all its rows before you prepare that text again. */
  override prepare(sql: string): StatementSync {
    const kept = this.#kept.get(sql)
    if (kept !== undefined) return kept
    if (this.#kept.size === MOST_KEPT) this.#kept.clear()
    const statement = super.prepare(sql)
    this.#kept.set(sql, statement)
    return statement
  }
}

/** The event loop accepts one connection per turn, so a group of requests takes several turns to arrive. */
const COLLECTING_MS = 5

/**
 * Takes the write lock, runs the work, and commits. Throws, and writes nothing, if the work throws or returns a
 * promise, because a promise would continue outside the transaction. May be nested.
 */
export function inTransaction<T>({ db }: { readonly db: DatabaseSync }, work: () => T): T {
  const [begin, commit, rollBack] = db.isTransaction ? NESTED : OUTERMOST
  db.exec(begin)
  try {
    const result = work()
    refusePromise(result)
    db.exec(commit)
    return result
  } catch (error) {
    // SQLite itself has rolled back after some errors, such as a full disk.
    if (db.isTransaction) db.exec(rollBack)
    throw error
  }
}

const OUTERMOST = ['BEGIN IMMEDIATE', 'COMMIT', 'ROLLBACK'] as const
const NESTED = ['SAVEPOINT work', 'RELEASE work', 'ROLLBACK TO work; RELEASE work'] as const

function refusePromise(result: unknown): void {
  const { then } = Object(result) as { readonly then?: unknown }
  if (typeof then === 'function') throw new TypeError('The work of a transaction must not be asynchronous.')
}

/** Combines the writes of several requests in one transaction, because each transaction waits for the disk. */
export class SharedTransactions {
  readonly #db: DatabaseSync
  #waiting: Waiting[] = []

  constructor(db: DatabaseSync) {
    this.#db = db
  }

  /**
   * Resolves when the work's writes are on the disk. If the work throws, rejects with the same error, and none of the
   * work's writes remain. The work runs once more, alone, if its writes were rolled back together with those of other
   * work. Also rejects if the write lock stays taken for too long.
   */
  async run<T>(work: () => T): Promise<T> {
    return await new Promise<T>((resolve, reject) => {
      const attempt = () => {
        const result = inTransaction({ db: this.#db }, work)
        return () => resolve(result)
      }
      if (this.#waiting.push({ attempt, reject }) === 1) setTimeout(() => this.#writeAll(), COLLECTING_MS)
    })
  }

  #writeAll(): void {
    const all = this.#waiting
    this.#waiting = []
    let isBegun = false
    try {
      const settled = inTransaction({ db: this.#db }, () => {
        isBegun = true
        return all.map(waiting => this.#settle(waiting))
      })
      for (const answer of settled) answer()
    } catch (error) {
      // If the group never got the lock, each piece of work would wait for it just as long.
      if (!isBegun || all.length === 1) for (const { reject } of all) reject(error)
      else for (const waiting of all) writeAlone(waiting)
    }
  }

  #settle({ attempt, reject }: Waiting): () => void {
    try {
      return attempt()
    } catch (error) {
      if (!this.#db.isTransaction) throw error
      return () => reject(error)
    }
  }
}

/** Used after a rollback of the whole group. A statement of other work or a full disk can cause such a rollback. */
function writeAlone({ attempt, reject }: Waiting): void {
  try {
    attempt()()
  } catch (error) {
    reject(error)
  }
}

interface Waiting {
  /** Does the work. Returns a function that answers the request; call it once the work's writes are on the disk. */
  readonly attempt: () => () => void
  readonly reject: (error: unknown) => void
}
