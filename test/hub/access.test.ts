import assert from 'node:assert/strict'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { createKey, listKeys, renewAdminToken, revokeKey } from '../../hub/access.ts'
import { ADMIN_TOKEN, errorOf, type HubUnderTest, runHub, SIGNING_SECRET } from './running-hub.ts'

const INSTALL = '/plugins/hello/install'

describe('issuing a key', () => {
  it('answers with the key and its record', async t => {
    const hub = await runHub(t)
    const response = await hub.call('/devkeys/api-keys', { bearer: ADMIN_TOKEN, json: { name: 'ci' } })
    const issued = (await response.json()) as Record<string, string>
    assert.equal(response.status, 201)
    assert.deepEqual(Object.keys(issued).sort(), [
      'created_at',
      'id',
      'is_active',
      'key',
      'last_used_at',
      'name',
      'prefix',
    ])
    assert.equal(issued['name'], 'ci')
    assert.equal(issued['is_active'], true)
    assert.equal(issued['last_used_at'], null)
    assert.ok(issued['key']?.startsWith(String(issued['prefix'])))
    assert.ok(String(issued['prefix']).length < 12)
  })

  it('makes a key that works', async t => {
    const hub = await runHub(t)
    await hub.publish()
    const issued = await hub.call('/devkeys/api-keys', { bearer: ADMIN_TOKEN, json: { name: 'ci' } })
    const { key } = (await issued.json()) as { key: string }
    assert.equal((await hub.call(INSTALL, { key })).status, 200)
  })

  for (const [name, headers] of [
    ['a missing token', {}],
    ['a wrong token', { Authorization: 'Bearer wrong-token-of-the-tests' }],
    ['an empty token', { Authorization: 'Bearer ' }],
    ['another scheme', { Authorization: `Token ${ADMIN_TOKEN}` }],
    ['the token as an API key', { 'X-API-Key': ADMIN_TOKEN }],
  ] as const) {
    it(`answers 401 to ${name}`, async t => {
      const hub = await runHub(t)
      const response = await hub.call('/devkeys/api-keys', { headers, json: { name: 'ci' } })
      assert.equal(response.status, 401)
      assert.ok(await errorOf(response))
      assert.deepEqual(listKeys(hub.store), [])
    })
  }

  it('answers 401 to the old admin token after a renewal', async t => {
    const hub = await runHub(t)
    const renewed = renewAdminToken(hub.store)
    assert.equal((await hub.call('/devkeys/api-keys', { bearer: ADMIN_TOKEN, json: { name: 'ci' } })).status, 401)
    assert.equal((await hub.call('/devkeys/api-keys', { bearer: renewed, json: { name: 'ci' } })).status, 201)
  })

  for (const [name, json, field] of [
    ['a missing name', {}, 'name'],
    ['an empty name', { name: '' }, 'name'],
    ['a name of two lines', { name: 'a\nb' }, 'name'],
    ['a slug that is a path', { name: 'ci', kind: 'plugin', slug: '../x' }, 'slug'],
    ['an unknown kind', { name: 'ci', kind: 'theme', slug: 'x' }, 'kind'],
    ['a slug without a kind', { name: 'ci', slug: 'x' }, 'kind'],
    ['a list', ['ci'], 'body'],
  ] as const) {
    it(`answers 400, with the field, to ${name}`, async t => {
      const hub = await runHub(t)
      const response = await hub.call('/devkeys/api-keys', { bearer: ADMIN_TOKEN, json })
      assert.equal(response.status, 400)
      assert.match(await errorOf(response), new RegExp(field))
    })
  }
})

describe('a key', () => {
  for (const [name, key] of [
    ['without a key', undefined],
    ['with an empty key', ''],
    ['with an unknown key', 'hub_unknown'],
    ['with a key that is SQL', "' OR '1'='1"],
  ]) {
    it(`is required: 401 ${name}`, async t => {
      const hub = await runHub(t)
      await hub.publish()
      const response = await hub.call(INSTALL, key === undefined ? {} : { key })
      assert.equal(response.status, 401)
      assert.ok(await errorOf(response))
    })
  }

  it('is refused after its revocation', async t => {
    const hub = await runHub(t)
    await hub.publish()
    const { key, record } = createKey(hub.store, { name: 'ci' })
    assert.equal((await hub.call(INSTALL, { key })).status, 200)
    assert.equal(revokeKey(hub.store, record.id).is_active, false)
    assert.equal((await hub.call(INSTALL, { key })).status, 401)
  })

  it('cannot be replaced by its hash or its prefix', async t => {
    const hub = await runHub(t)
    await hub.publish()
    hub.newKey()
    const { hash, prefix } = hub.store.db.prepare('SELECT hash, prefix FROM api_keys').get() as Record<string, string>
    assert.equal((await hub.call(INSTALL, { key: String(hash) })).status, 401)
    assert.equal((await hub.call(INSTALL, { key: String(prefix) })).status, 401)
  })

  it('records when it was last used', async t => {
    const hub = await runHub(t)
    await hub.publish()
    const key = hub.newKey()
    assert.equal(listKeys(hub.store)[0]?.last_used_at, null)
    await hub.call(INSTALL, { key })
    assert.match(String(listKeys(hub.store)[0]?.last_used_at), /^\d{4}-.*Z$/)
  })

  it('records its use at most once a minute, because each record waits for the disk', async t => {
    const hub = await runHub(t)
    await hub.publish()
    const key = hub.newKey()
    const lastUseAfter = async (noted: string) => {
      hub.store.db.prepare('UPDATE api_keys SET last_used_at = ?').run(noted)
      await hub.call(INSTALL, { key })
      return listKeys(hub.store)[0]?.last_used_at
    }
    const now = new Date().toISOString()
    assert.equal(await lastUseAfter(now), now)
    for (const other of ['2020-01-01T00:00:00.000Z', '2999-01-01T00:00:00.000Z'])
      assert.notEqual(await lastUseAfter(other), other)
  })

  it('works only for its own plugin if it is bound', async t => {
    const hub = await runHub(t)
    for (const slug of ['hello', 'other']) await hub.publish({ slug })
    await hub.publish({ kind: 'service' })
    const key = hub.newKey({ kind: 'plugin', slug: 'hello' })
    assert.equal((await hub.call(INSTALL, { key })).status, 200)
    for (const path of ['/plugins/other/install', '/services/hello/install', '/deployments/plugin/other/hosts']) {
      const response = await hub.call(path, { key })
      assert.equal(response.status, 403, path)
      assert.match(await errorOf(response), /plugin hello/)
    }
  })

  it('is nowhere in the data folder, and neither are the admin token and the signing secret', async t => {
    const hub = await runHub(t)
    await hub.publish()
    const key = hub.newKey()
    await hub.call(INSTALL, { key })
    const files = storedFiles(hub)
    assert.ok(files.length >= 3)
    for (const { path, bytes } of files) {
      for (const secret of [key, key.slice(12), ADMIN_TOKEN, SIGNING_SECRET]) {
        assert.equal(bytes.includes(secret), false, path)
      }
    }
  })
})

describe('the data folder', () => {
  it('is readable only by its user', async t => {
    const hub = await runHub(t)
    await hub.publish()
    assert.equal(statSync(hub.dataDir).mode & 0o777, 0o700)
    for (const { path } of storedFiles(hub)) assert.equal(statSync(path).mode & 0o777, 0o600, path)
  })
})

function storedFiles(hub: HubUnderTest): { path: string; bytes: Buffer }[] {
  const entries = readdirSync(hub.dataDir, { recursive: true, withFileTypes: true })
  const paths = entries.filter(entry => entry.isFile()).map(entry => join(entry.parentPath, entry.name))
  return paths.map(path => ({ path, bytes: readFileSync(path) }))
}

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
