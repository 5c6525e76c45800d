import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { catchUpWithReports, readFleet } from '../../../hub/marketplace/fleet.ts'
import { listHosts, pruneReports, recordReport } from '../../../hub/marketplace/reports.ts'
import { listDeployments, pruneProjectReports, recordProjectReport } from '../../../hub/project/reports.ts'
import { inTransaction, openStore, type Store } from '../../../hub/store.ts'
import { hub } from '../run-cli.ts'
import { ADMIN_TOKEN, errorOf, type HubUnderTest, newFolder, runHub } from '../running-hub.ts'
import { plansOf } from '../stored-reports.ts'

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

  it('shows the report that arrived last, even if the clock of the host was set back', async t => {
    const hub = await runHub(t)
    const key = hub.newKey()
    await send(hub, key, { version: '1.0.0', completed_at: '2026-01-02T04:00:00Z' })
    await send(hub, key, { version: '1.1.0', completed_at: '2026-01-02T03:59:59.999+00:00' })
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

const DAY_MS = 86_400_000
const LISTING = { kind: 'plugin', slug: 'hello' } as const
/** A time by which the hub had received every report of these tests. */
const AFTERWARDS = new Date(Date.now() + DAY_MS)

function openTemporaryStore(t: TestContext): Store {
  const store = openStore(join(newFolder(t), 'data'))
  t.after(() => store.close())
  return store
}

/** Reports the deployments of one host, a minute apart. */
function report(
  store: Store,
  minute: number,
  more: { slug?: string; host_id?: string; status?: 'success' | 'failed' } = {},
): void {
  const at = new Date(Date.UTC(2026, 0, 1, 0, minute)).toISOString()
  const known = { ...LISTING, version: `1.0.${minute}`, repo: null, error_message: null }
  recordReport(store, 'alice', { ...known, status: 'success', started_at: at, completed_at: at, host_id: 'a', ...more })
}

/** SQL that inserts a report without its row in the table `fleet`. */
const PLAIN_REPORT = `
  INSERT INTO reports (id, deployer_id, kind, slug, version, host_id, status, started_at, completed_at, created_at)
  VALUES (:id, 'alice', 'plugin', 'hello', '1.0.0', 'a', :status, :completed_at, :completed_at, :created_at)`

const versionsIn = ({ db }: Store) =>
  db
    .prepare('SELECT version, host_id FROM reports ORDER BY seq')
    .all()
    .map(row => `${row['host_id']} ${row['version']}`)

describe('pruning reports', () => {
  it('keeps the newest report of each host, and its newest success', async t => {
    const store = openTemporaryStore(t)
    for (const minute of [1, 2, 3]) report(store, minute)
    for (const minute of [4, 5]) report(store, minute, { status: 'failed' })
    report(store, 1, { host_id: 'b' })
    const before = fleetOf(store)
    assert.equal(await pruneReports(store, AFTERWARDS), 3)
    assert.deepEqual(versionsIn(store), ['a 1.0.3', 'a 1.0.5', 'b 1.0.1'])
    assert.deepEqual(fleetOf(store), before)
  })

  it('keeps reports that arrived since, however long ago they were completed', async t => {
    const store = openTemporaryStore(t)
    for (const minute of [1, 2]) report(store, minute)
    assert.equal(await pruneReports(store, new Date(Date.now() - DAY_MS)), 0)
  })

  it('forgets a name that ran nowhere, and keeps the failures of a name that ran on any host', async t => {
    const store = openTemporaryStore(t)
    const [real, mistake] = ['real', 'mistake'].map(slug => ({ slug, status: 'failed' }) as const)
    report(store, 1, { slug: 'real' })
    report(store, 2, { ...real, host_id: 'b' })
    report(store, 3, { ...mistake, host_id: 'b' })
    assert.equal(await pruneReports(store, AFTERWARDS), 1)
    assert.deepEqual(versionsIn(store), ['a 1.0.1', 'b 1.0.2'])
    assert.deepEqual(
      fleetOf(store)
        .rows.map(({ slug, host_id }) => `${slug} ${host_id}`)
        .sort(),
      ['real a', 'real b'],
    )
  })

  it('shows the newest remaining report of a name that ran nowhere', async t => {
    const store = openTemporaryStore(t)
    report(store, 4, { status: 'failed' })
    // The clock of the hub was set back before this report arrived.
    const old = {
      id: 'old',
      status: 'failed',
      completed_at: '2026-01-01T00:05:00Z',
      created_at: '2026-01-01T00:06:00Z',
    }
    store.db.prepare(PLAIN_REPORT).run(old)
    assert.deepEqual(
      fleetOf(store).rows.map(({ attempted_version }) => attempted_version),
      ['1.0.0'],
    )
    assert.equal(await pruneReports(store, new Date('2026-01-02T00:00:00Z')), 1)
    assert.deepEqual(
      fleetOf(store).rows.map(({ attempted_version }) => attempted_version),
      ['1.0.4'],
    )
  })

  it('lets other requests write between its batches', async t => {
    const store = openTemporaryStore(t)
    const other = openStore(store.dataDir)
    t.after(() => other.close())
    inTransaction(store, () => {
      const insert = store.db.prepare(PLAIN_REPORT)
      const at = { completed_at: '2026-01-01T00:00:00Z', created_at: '2026-01-01T00:00:00Z' }
      for (let n = 0; n < 12_000; n++) insert.run({ id: String(n), status: 'success', ...at })
    })
    catchUpWithReports(store)
    const pruning = pruneReports(store, AFTERWARDS)
    other.db.exec('PRAGMA busy_timeout = 0')
    report(other, 9, { host_id: 'b' })
    assert.equal(await pruning, 11_999)
    assert.deepEqual(versionsIn(store), ['a 1.0.0', 'b 1.0.9'])
  })

  it('leaves the table of reports append-only for everyone else', async t => {
    const store = openTemporaryStore(t)
    report(store, 1)
    await pruneReports(store, AFTERWARDS)
    assert.throws(() => store.db.exec('DELETE FROM reports'), /append-only/)
  })

  it('keeps the newest report of each project', async t => {
    const store = openTemporaryStore(t)
    for (const [minute, project_id] of [
      [1, 'shop'],
      [2, 'shop'],
      [3, 'blog'],
    ] as const) {
      const at = new Date(Date.UTC(2026, 0, 1, 0, minute)).toISOString()
      const known = { deployment_id: randomUUID(), status: 'success' as const, plugins: [] }
      const report = { ...known, project_id, version: `1.0.${minute}`, started_at: at, completed_at: at }
      recordProjectReport(store, report, Date.now())
    }
    assert.equal(await pruneProjectReports(store, AFTERWARDS), 1)
    assert.deepEqual(
      listDeployments(store, 10).map(({ version }) => version),
      ['1.0.3', '1.0.2'],
    )
  })
})

const fleetOf = (store: Store) => readFleet(store, { text: '', onlyAttention: false, page: 1 })

const isOfSuccess = (detail: string): boolean => detail.includes('INDEX successes_by_arrival')

describe('the hosts of a plugin with many reports', () => {
  it('are found by an index with every column that decides which report is the newest', t => {
    const store = openTemporaryStore(t)
    const plans = plansOf(store, () => {
      listHosts(store, LISTING)
      listHosts(store, LISTING, 'alice')
    })
    const reads = plans.filter(
      detail => /^(?:SCAN|SEARCH) (?:reports|newest)/.test(detail) && !detail.includes('rowid=?'),
    )
    assert.equal(reads.length, 6, plans.join('\n'))
    const [running, newest] = [reads.filter(isOfSuccess), reads.filter(detail => !isOfSuccess(detail))]
    assert.equal(running.length, 2, plans.join('\n'))
    for (const detail of newest) assert.match(detail, /USING COVERING INDEX reports_by_arrival/)
    assert.ok(!plans.some(detail => detail.includes('LAST')), plans.join('\n'))
  })
})

describe('the prune command', () => {
  it('removes older reports, and counts them', async t => {
    const folder = join(newFolder(t), 'data')
    const store = openStore(folder)
    for (const minute of [1, 2]) report(store, minute)
    store.close()
    const { code, stdout } = await hub('prune', '--older-than', '365d', '--data', folder)
    assert.deepEqual([code, stdout], [0, 'Removed 0 reports older than 365 days.\n'])
  })

  for (const wrong of ['', '365', '0d', '1y', '-1d']) {
    it(`refuses ${JSON.stringify(wrong)} as an age`, async t => {
      const { code, stderr } = await hub('prune', `--older-than=${wrong}`, '--data', newFolder(t))
      assert.equal(code, 2)
      assert.match(stderr, /--older-than/)
    })
  }
})

describe('the list of deployments', () => {
  it("has the newest reports of the key's owner first, and only of a bound key's own plugin", async t => {
    const hub = await runHub(t)
    const alice = hub.newKey({ owner: 'alice' })
    await send(hub, alice, { host_id: 'host-1' })
    await send(hub, alice, { slug: 'other', host_id: 'host-2' })
    await send(hub, hub.newKey({ owner: 'bob' }), { host_id: 'host-3' })
    const bound = hub.newKey({ owner: 'alice', kind: 'plugin', slug: 'hello' })
    const hosts = async (path: string, who: { key?: string; bearer?: string }) => {
      const response = await hub.call(path, who)
      return response.status === 200 ? ((await response.json()) as Row[]).map(row => row['host_id']) : response.status
    }
    assert.deepEqual(await hosts('/deployments', { key: alice }), ['host-2', 'host-1'])
    assert.deepEqual(await hosts('/app/xdeployments/deployments?limit=1', { key: alice }), ['host-2'])
    assert.deepEqual(await hosts('/deployments?kind=plugin&slug=hello', { key: alice }), ['host-1'])
    assert.deepEqual(await hosts('/deployments', { key: bound }), ['host-1'])
    assert.equal(await hosts('/deployments?slug=other', { key: bound }), 403)
    assert.deepEqual(await hosts('/deployments', { bearer: ADMIN_TOKEN }), ['host-3', 'host-2', 'host-1'])
    assert.equal(await hosts('/deployments', {}), 401)
    for (const query of ['limit=0', 'limit=x', 'limit=1001', 'kind=app'])
      assert.equal(await hosts(`/deployments?${query}`, { key: alice }), 400)
  })
})
