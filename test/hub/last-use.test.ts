import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { runHub } from './running-hub.ts'

describe('the record of the last use of a key', () => {
  it('does not fail a request when it cannot be written', async t => {
    const hub = await runHub(t)
    await hub.publish()
    const key = hub.newKey()
    hub.store.db.exec(
      `CREATE TRIGGER full BEFORE UPDATE ON api_keys BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END`,
    )
    assert.equal((await hub.call('/plugins/hello/install', { key })).status, 200)
  })
})
