import assert from 'node:assert/strict'
import { DatabaseSync } from 'node:sqlite'
import { describe, it, type TestContext } from 'node:test'
import { inTransaction, SharedTransactions } from '../../hub/transactions.ts'

describe('a transaction that several requests share', () => {
  it('keeps the work of the others when one statement rolls back the whole transaction', async t => {
    const db = newDatabase(t)
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
    const db = newDatabase(t)
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
    const db = newDatabase(t)
    assert.throws(() => inTransaction({ db }, async () => db.exec('INSERT INTO notes VALUES (1)')), TypeError)
    assert.deepEqual(notesOf(db), [])
  })
})

function newDatabase(t: TestContext): DatabaseSync {
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
