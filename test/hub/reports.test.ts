import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { ADMIN_TOKEN, errorOf, type HubUnderTest, runHub } from './running-hub.ts'

const REPORT = {
  kind: 'plugin',
  slug: 'hello',
  version: '1.0.0',
  status: 'success',
  started_at: '2026-01-02T03:04:05Z',
  completed_at: '2026-01-02T03:04:06.789Z',
  host_id: 'host-1',
  repo: 'octo/hello@v1.0.0',
  error_message: null,
}
const HOSTS = '/deployments/plugin/hello/hosts'

type Row = Record<string, unknown>

describe('reporting a deployment', () => {
  it('answers 201 with the stored row', async t => {
    const hub = await runHub(t)
    const response = await send(hub, hub.newKey({ owner: 'alice' }), {})
    const { id, created_at, ...row } = (await response.json()) as Row
    assert.equal(response.status, 201)
    assert.deepEqual(row, { ...REPORT, deployer_id: 'alice' })
    assert.ok(id)
    assert.match(String(created_at), /Z$/)
  })

  for (const [name, change] of [
    ['a report without a repo or an error message', { repo: undefined, error_message: undefined }],
    ['a failure', { status: 'failed', error_message: 'step "up" failed:\nexit 1' }],
    ['a rollback', { status: 'rolled_back' }],
    ['a service', { kind: 'service' }],
    ['a slug that the hub does not know', { slug: 'unknown' }],
    ['a time written with the offset +00:00', { completed_at: '2026-01-02T03:04:06.789012+00:00' }],
    ['a field that is not in the contract', { extra: true }],
  ] as const) {
    it(`accepts ${name}`, async t => {
      const hub = await runHub(t)
      assert.equal((await send(hub, hub.newKey(), change)).status, 201)
    })
  }

  it('makes a NUL in a message visible, because SQLite would end the text there', async t => {
    const hub = await runHub(t)
    const response = await send(hub, hub.newKey(), { status: 'failed', error_message: 'a\0b' })
    assert.equal(((await response.json()) as Row)['error_message'], 'a\uFFFDb')
  })

  for (const [field, value] of [
    ['kind', 'theme'],
    ['slug', '../x'],
    ['slug', 7],
    ['version', ''],
    ['version', '../../x'],
    ['status', 'ok'],
    ['started_at', 'yesterday'],
    ['started_at', '2026-02-30T00:00:00Z'],
    ['completed_at', '2026-01-02T03:04:06'],
    ['completed_at', '2026-01-02T03:04:06+02:00'],
    ['host_id', ''],
    ['host_id', 'a\nb'],
    ['host_id', undefined],
    ['repo', 7],
    ['error_message', 'x'.repeat(20_001)],
  ] as const) {
    it(`answers 400, with the field ${field}, to ${JSON.stringify(value)?.slice(0, 40)}`, async t => {
      const hub = await runHub(t)
      const response = await send(hub, hub.newKey(), { [field]: value })
      assert.equal(response.status, 400)
      assert.match(await errorOf(response), new RegExp(`^${field}: `))
    })
  }

  it('answers 401 without a key and stores nothing', async t => {
    const hub = await runHub(t)
    assert.equal((await hub.call('/deployments/report', { json: REPORT })).status, 401)
    assert.deepEqual(await hosts(hub, { bearer: ADMIN_TOKEN }), [])
  })

  it('answers 403 to a key that is bound to another plugin', async t => {
    const hub = await runHub(t)
    const key = hub.newKey({ kind: 'plugin', slug: 'hello' })
    assert.equal((await send(hub, key, { slug: 'other' })).status, 403)
    assert.equal((await send(hub, key, {})).status, 201)
  })

  it('is permanent: the database refuses to change or delete a report', async t => {
    const hub = await runHub(t)
    await send(hub, hub.newKey(), {})
    assert.throws(() => hub.store.db.exec("UPDATE reports SET status = 'failed'"), /append-only/)
    assert.throws(() => hub.store.db.exec('DELETE FROM reports'), /append-only/)
  })
})

describe('the fleet view', () => {
  it('shows the newest report of each host', async t => {
    const hub = await runHub(t)
    const key = hub.newKey()
    await send(hub, key, { host_id: 'host-2' })
    await send(hub, key, {})
    await send(hub, key, { version: '1.1.0' })
    const rows = await hosts(hub, { key })
    assert.deepEqual(
      rows.map(({ host_id, version }) => [host_id, version]),
      [
        ['host-1', '1.1.0'],
        ['host-2', '1.0.0'],
      ],
    )
  })

  it('has every field of the stored row, and the running version', async t => {
    const hub = await runHub(t)
    const key = hub.newKey({ owner: 'alice' })
    const stored = (await (await send(hub, key, {})).json()) as Row
    assert.deepEqual(await hosts(hub, { key }), [{ ...stored, running_version: '1.0.0' }])
    assert.deepEqual(Object.keys(stored).sort(), [...Object.keys(REPORT), 'created_at', 'deployer_id', 'id'].sort())
  })

  for (const [name, reports, running] of [
    [
      'the version of the last report if that is a success',
      [
        ['1.0.0', 'success'],
        ['1.1.0', 'success'],
      ],
      '1.1.0',
    ],
    [
      'the last success before failures and rollbacks',
      [
        ['1.0.0', 'success'],
        ['1.1.0', 'success'],
        ['1.2.0', 'failed'],
        ['1.2.0', 'rolled_back'],
      ],
      '1.1.0',
    ],
    [
      'an older version that was restored on purpose',
      [
        ['1.1.0', 'success'],
        ['1.0.0', 'success'],
        ['1.2.0', 'failed'],
      ],
      '1.0.0',
    ],
    [
      'null if nothing ever succeeded',
      [
        ['1.0.0', 'failed'],
        ['1.0.0', 'rolled_back'],
      ],
      null,
    ],
  ] as const) {
    it(`shows as the running version ${name}`, async t => {
      const hub = await runHub(t)
      const key = hub.newKey()
      for (const [minute, [version, status]] of reports.entries())
        await send(hub, key, { version, status, completed_at: `2026-01-02T03:0${minute}:00Z` })
      await send(hub, key, { version: '9.9.9', completed_at: '2026-01-02T03:09:00Z', host_id: 'host-2' })
      await send(hub, hub.newKey({ owner: 'bob' }), { version: '8.8.8' })
      const [row] = await hosts(hub, { key })
      assert.equal(row?.['running_version'], running)
    })
  }

  it('ignores a report of an older deployment that arrives late', async t => {
    const hub = await runHub(t)
    const key = hub.newKey()
    await send(hub, key, { version: '1.1.0', completed_at: '2026-01-02T04:00:00Z' })
    await send(hub, key, { version: '1.0.0', completed_at: '2026-01-02T03:59:59.999+00:00' })
    assert.equal((await hosts(hub, { key }))[0]?.['version'], '1.1.0')
  })

  it("shows only the owner's hosts for a key", async t => {
    const hub = await runHub(t)
    const alice = hub.newKey({ name: 'ci', owner: 'alice' })
    const alsoAlice = hub.newKey({ name: 'laptop', owner: 'alice' })
    const bob = hub.newKey({ name: 'ci', owner: 'bob' })
    await send(hub, alice, { version: '1.0.0' })
    await send(hub, bob, { version: '2.0.0' })
    assert.deepEqual(versionsOf(await hosts(hub, { key: alice })), ['1.0.0'])
    assert.deepEqual(versionsOf(await hosts(hub, { key: alsoAlice })), ['1.0.0'])
    assert.deepEqual(versionsOf(await hosts(hub, { key: bob })), ['2.0.0'])
  })

  it('separates keys without an owner by their names', async t => {
    const hub = await runHub(t)
    await send(hub, hub.newKey({ name: 'one' }), {})
    assert.deepEqual(await hosts(hub, { key: hub.newKey({ name: 'two' }) }), [])
  })

  it('shows the hosts of all owners for the admin token', async t => {
    const hub = await runHub(t)
    await send(hub, hub.newKey({ owner: 'alice' }), { version: '1.0.0' })
    await send(hub, hub.newKey({ owner: 'bob' }), { version: '2.0.0' })
    assert.deepEqual(versionsOf(await hosts(hub, { bearer: ADMIN_TOKEN })), ['1.0.0', '2.0.0'])
  })

  it('prefers the key if both are sent', async t => {
    const hub = await runHub(t)
    await send(hub, hub.newKey({ owner: 'alice' }), {})
    assert.deepEqual(await hosts(hub, { key: hub.newKey({ owner: 'bob' }), bearer: ADMIN_TOKEN }), [])
  })

  it('distinguishes plugins, services and slugs', async t => {
    const hub = await runHub(t)
    const key = hub.newKey()
    await send(hub, key, { kind: 'service' })
    await send(hub, key, { slug: 'other' })
    assert.deepEqual(await hosts(hub, { key }), [])
  })

  for (const [name, path, options, status] of [
    ['a missing key', HOSTS, {}, 401],
    ['an unknown key', HOSTS, { key: 'hub_unknown' }, 401],
    ['a wrong token', HOSTS, { bearer: 'wrong-token-of-the-tests' }, 401],
    ['an unknown kind', '/deployments/theme/hello/hosts', { bearer: ADMIN_TOKEN }, 404],
  ] as const) {
    it(`answers ${status} to ${name}`, async t => {
      const hub = await runHub(t)
      const response = await hub.call(path, options)
      assert.equal(response.status, status)
      assert.ok(await errorOf(response))
    })
  }
})

function send(hub: HubUnderTest, key: string, change: Row): Promise<Response> {
  return hub.call('/deployments/report', { key, json: { ...REPORT, ...change } })
}

async function hosts(hub: HubUnderTest, access: { key?: string; bearer?: string }): Promise<Row[]> {
  return (await (await hub.call(HOSTS, access)).json()) as Row[]
}

function versionsOf(rows: Row[]): unknown[] {
  return rows.map(row => row['version'])
}
