import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import { HubDatabase } from '../../hub/database.ts'

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
