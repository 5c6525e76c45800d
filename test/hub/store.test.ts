import assert from 'node:assert/strict'
import { DatabaseSync } from 'node:sqlite'
import { describe, it, type TestContext } from 'node:test'
import { createKey, listKeys } from '../../hub/access.ts'
import { HubDatabase, inTransaction, openStore, SharedTransactions } from '../../hub/store.ts'
import { newFolder } from './running-hub.ts'

describe('the database of a hub', () => {
  it('compiles the same statement once, and another one for another text', t => {
    const db = newDatabase(t)
    assert.equal(db.prepare('SELECT id FROM notes'), db.prepare('SELECT id FROM notes'))
    assert.notEqual(db.prepare('SELECT id FROM notes'), db.prepare('SELECT max(id) FROM notes'))
  })

  it('returns the current rows, even after the table was changed', t => {
    const db = newDatabase(t)
    const read = () => db.prepare('SELECT * FROM notes ORDER BY id').all()
    db.exec('INSERT INTO notes VALUES (1)')
    assert.equal(read().length, 1)
    db.exec('INSERT INTO notes VALUES (2)')
    assert.equal(read().length, 2)
    db.exec('ALTER TABLE notes ADD COLUMN text')
    read()
    assert.deepEqual(
      read().map(row => ({ ...row })),
      [
        { id: 1, text: null },
        { id: 2, text: null },
      ],
    )
  })

  it('can reuse a statement that failed, and keeps at most a hundred statements', t => {
    const db = newDatabase(t)
    const insert = () => db.prepare('INSERT INTO notes VALUES (1)').run()
    insert()
    assert.throws(insert, /UNIQUE/)
    const first = db.prepare('SELECT 0')
    for (let n = 1; n <= 100; n++) assert.deepEqual({ ...db.prepare(`SELECT ${n} AS n`).get() }, { n })
    assert.notEqual(db.prepare('SELECT 0'), first)
    assert.throws(insert, /UNIQUE/)
    db.exec('DELETE FROM notes')
    insert()
  })
})

function newDatabase(t: TestContext): HubDatabase {
  const db = new HubDatabase(':memory:')
  t.after(() => db.close())
  db.exec('CREATE TABLE notes (id INTEGER PRIMARY KEY)')
  return db
}

describe('the data folder of an older hub', () => {
  it('gets the columns that it lacks, and its keys cannot publish', t => {
    const dataDir = newFolder(t)
    const store = openStore(dataDir)
    createKey(store, { name: 'ci' })
    store.db.exec('ALTER TABLE api_keys DROP COLUMN can_publish; ALTER TABLE versions DROP COLUMN held_at')
    store.close()
    const reopened = openStore(dataDir)
    t.after(() => reopened.close())
    assert.deepEqual(
      listKeys(reopened).map(key => key.can_publish),
      [false],
    )
    assert.deepEqual(reopened.db.prepare('SELECT held_at FROM versions').all(), [])
  })
})

describe('a transaction that several requests share', () => {
  it('keeps the work of the others when one statement rolls back the whole transaction', async t => {
    const db = newPlainDatabase(t)
    const shared = new SharedTransactions(db)
    const settled = await Promise.allSettled([
      shared.run(() => db.exec('INSERT INTO notes VALUES (1)')),
      shared.run(() => db.exec('INSERT OR ROLLBACK INTO notes VALUES (1)')),
      shared.run(() => db.exec('INSERT INTO notes VALUES (2)')),
    ])
    assert.deepEqual(
      settled.map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled'],
    )
    assert.deepEqual(notesOf(db), [1, 2])
  })

  it('writes nothing for a request whose work is asynchronous, and all work of the others', async t => {
    const db = newPlainDatabase(t)
    const shared = new SharedTransactions(db)
    const asynchronous = shared.run(async () => db.exec('INSERT INTO notes VALUES (1)'))
    const other = shared.run(() => db.exec('INSERT INTO notes VALUES (2)'))
    await assert.rejects(asynchronous, TypeError)
    await other
    assert.deepEqual(notesOf(db), [2])
  })
})

describe('a transaction', () => {
  it('is rolled back when its work is asynchronous', t => {
    const db = newPlainDatabase(t)
    assert.throws(() => inTransaction({ db }, async () => db.exec('INSERT INTO notes VALUES (1)')), TypeError)
    assert.deepEqual(notesOf(db), [])
  })
})

function newPlainDatabase(t: TestContext): DatabaseSync {
  const db = new DatabaseSync(':memory:')
  t.after(() => db.close())
  db.exec('CREATE TABLE notes (id INTEGER PRIMARY KEY)')
  return db
}

function notesOf(db: DatabaseSync): unknown[] {
  return db
    .prepare('SELECT id FROM notes ORDER BY id')
    .all()
    .map(({ id }) => id)
}
