import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { type FleetFilter, type FleetView, ROWS_ON_A_PAGE, readFleet } from '../../../hub/marketplace/fleet.ts'
import { publishArchive } from '../../../hub/marketplace/publish.ts'
import { listHosts, pruneReports } from '../../../hub/marketplace/reports.ts'
import { openStore, type Store } from '../../../hub/store.ts'
import { byExtent } from '../../extent.ts'
import { newFolder, SIGNING_SECRET } from '../running-hub.ts'
import { plansOf, report } from '../stored-reports.ts'

describe('the running version of a host', () => {
  for (const [name, reports, running, attempt] of [
    ['is the last success', [['1.0.0'], ['1.1.0']], '1.1.0', 'success'],
    ['stays after a rollback', [['1.0.0'], ['1.1.0', 'rolled_back']], '1.0.0', 'rolled_back'],
    ['stays after a refusal', [['1.0.0'], ['1.1.0', 'failed']], '1.0.0', 'failed'],
    [
      'stays through several failures',
      [['1.0.0'], ['1.1.0', 'failed'], ['1.2.0', 'rolled_back']],
      '1.0.0',
      'rolled_back',
    ],
    ['is the older version that was restored on purpose', [['1.0.0'], ['1.1.0'], ['1.0.0']], '1.0.0', 'success'],
    ['is the restored version after a failure too', [['1.1.0'], ['1.0.0'], ['1.1.0', 'failed']], '1.0.0', 'failed'],
    ['is the new version when an attempt succeeds at last', [['1.0.0', 'failed'], ['1.0.0']], '1.0.0', 'success'],
    [
      'stays when the same version fails to be deployed again',
      [['1.0.0'], ['1.0.0', 'rolled_back']],
      '1.0.0',
      'rolled_back',
    ],
    ['is unknown when nothing ever succeeded', [['1.0.0', 'failed']], null, 'failed'],
  ] as const) {
    it(name, t => {
      const store = newStore(t)
      for (const [nth, [version, status = 'success']] of reports.entries())
        report(store, { version, status, hoursAgo: 50 - nth })
      const [row] = read(store).rows
      assert.deepEqual([row?.running_version, row?.status], [running, attempt])
      assert.equal(row?.attempted_version, reports.at(-1)?.[0])
    })
  }
})

describe('a host whose clock jumps', () => {
  const inFuture = '2099-01-01T00:00:00Z'
  const now = new Date().toISOString()
  const past = '2020-01-01T00:00:00Z'

  for (const [name, times] of Object.entries({
    'is years ahead, and then right': [inFuture, inFuture, now],
    'is right, and then years behind': [now, now, past],
    'jumps both ways': [now, inFuture, past],
  }))
    it(`is shown with its last report if its clock ${name}`, async t => {
      const store = newStore(t)
      for (const [nth, version] of ['1.0.0', '1.1.0', '1.2.0'].entries())
        report(store, { version, completed_at: times[nth] as string })
      report(store, { version: '1.3.0', completed_at: times[2] as string, status: 'failed' })
      for (const removed of [0, 2]) {
        const [row] = read(store).rows
        assert.deepEqual([row?.running_version, row?.attempted_version], ['1.2.0', '1.3.0'])
        const [host] = listHosts(store, { kind: 'plugin', slug: 'hello' })
        assert.deepEqual([host?.version, host?.running_version], ['1.3.0', '1.2.0'])
        if (removed === 0) assert.equal(await pruneReports(store, new Date('2100-01-01')), 2)
      }
    })

  it('is shown correctly by a hub with the data folder of an older release', t => {
    const store = newStore(t)
    report(store, { version: '1.0.0', completed_at: inFuture })
    report(store, { version: '1.1.0', completed_at: new Date().toISOString() })
    store.db.exec(AS_OLDER_HUBS_WROTE)
    const reopened = openStore(store.dataDir)
    t.after(() => reopened.close())
    const [row] = read(reopened).rows
    assert.deepEqual([row?.running_version, row?.attempted_version], ['1.1.0', '1.1.0'])
  })
})

/** SQL that restores the state of an older hub, which ordered reports by the host's clock alone. */
const AS_OLDER_HUBS_WROTE = `
  DROP INDEX reports_by_arrival;
  DROP INDEX successes_by_arrival;
  CREATE INDEX reports_by_host_and_time ON reports (kind, slug, deployer_id, host_id, julianday(completed_at), seq);
  UPDATE fleet SET newest_seq = 1, success_seq = 1, running_version = '1.0.0';
  DELETE FROM settings WHERE name LIKE 'fleet_seq%';
  INSERT INTO settings (name, value) VALUES ('fleet_seq', '2');
`

describe('the order of the fleet', () => {
  it('has failures first, then hosts in natural order', t => {
    const store = newStore(t)
    for (const host_id of ['app-10', 'app-2', 'App-1', 'app-02', 'b', 'app-1', 'app-9999999999999999999999', 'app'])
      report(store, { host_id })
    for (const host_id of ['z-10', 'z-9']) report(store, { host_id, status: 'failed' })
    assert.deepEqual(
      read(store).rows.map(({ host_id }) => host_id),
      ['z-9', 'z-10', 'app', 'App-1', 'app-1', 'app-02', 'app-2', 'app-10', 'app-9999999999999999999999', 'b'],
    )
  })
})

describe('the counts of the fleet', () => {
  it('include the hosts and the running versions', async t => {
    const store = newStore(t)
    await publish(store, 'hello')
    for (const host_id of ['a', 'b', 'c']) report(store, { host_id, hoursAgo: 2 })
    report(store, { host_id: 'b', version: '1.1.0' })
    report(store, { host_id: 'c', version: '1.1.0', status: 'failed' })
    report(store, { host_id: 'd', status: 'failed' })
    report(store, { host_id: 'a', slug: 'helo', status: 'failed' })
    const { counts } = read(store)
    assert.deepEqual(counts, {
      hosts: 4,
      hostsThatNeedAttention: 3,
      owners: 1,
      unknown: 1,
      listings: [
        {
          kind: 'plugin',
          slug: 'hello',
          hosts: 4,
          versions: [
            { version: '1.0.0', hosts: 2 },
            { version: '1.1.0', hosts: 1 },
            { version: null, hosts: 1 },
          ],
        },
      ],
      moreListings: 0,
    })
  })

  it('name a few of many plugins and versions', async t => {
    const store = newStore(t)
    for (let n = 1; n <= 8; n++) await publish(store, `p${n}`)
    for (let n = 1; n <= 8; n++) report(store, { slug: `p${n}` })
    for (let n = 1; n <= 9; n++) report(store, { slug: 'p5', host_id: `h${n}`, version: `1.${n}.0` })
    const { listings, moreListings } = read(store).counts
    assert.deepEqual([listings.length, moreListings], [6, 2])
    assert.deepEqual([listings[0]?.slug, listings[0]?.hosts, listings[0]?.versions.length], ['p5', 10, 4])
  })
})

describe('a name that the hub never published', () => {
  it('is marked, until it is published', async t => {
    const store = newStore(t)
    report(store, {})
    assert.equal(read(store).rows[0]?.is_known, false)
    await publish(store, 'hello')
    assert.equal(read(store).rows[0]?.is_known, true)
  })

  it('disappears when its reports are pruned, unless a host runs it', async t => {
    const store = newStore(t)
    report(store, { slug: 'helo', status: 'failed' })
    report(store, { slug: 'elsewhere', hoursAgo: 2 })
    report(store, { slug: 'elsewhere', status: 'failed' })
    await publish(store, 'hello')
    report(store, { slug: 'hello', status: 'failed' })
    assert.equal(await pruneReports(store, new Date(Date.now() + 86_400_000)), 1)
    assert.deepEqual(
      read(store)
        .rows.map(({ slug }) => slug)
        .sort(),
      ['elsewhere', 'hello'],
    )
  })
})

describe('the filter of the fleet', () => {
  for (const [text, found] of [
    ['app', ['app-2', 'app-1']],
    ['APP-1', ['app-1']],
    ['1.1.0', ['app-2', 'Über']],
    ['app 1.1', ['app-2']],
    ['service', ['Über']],
    ['mail', ['Über']],
    ['über', ['Über']],
    ['%', []],
    ["' OR 1=1 --", []],
    ['   ', ['app-2', 'app-1', 'Über']],
  ] as const) {
    it(`finds rows that contain ${JSON.stringify(text)}`, t => {
      const store = newStore(t)
      report(store, { host_id: 'app-1' })
      report(store, { host_id: 'app-2', hoursAgo: 2 })
      report(store, { host_id: 'app-2', version: '1.1.0', status: 'rolled_back' })
      report(store, { host_id: 'Über', kind: 'service', slug: 'mail', version: '1.1.0' })
      const { rows, matching } = read(store, { text })
      assert.deepEqual(
        rows.map(({ host_id }) => host_id),
        found,
      )
      assert.equal(matching, found.length)
    })
  }

  it('finds hosts that need attention', t => {
    const store = newStore(t)
    report(store, { host_id: 'app-1' })
    report(store, { host_id: 'app-2', status: 'failed' })
    const { rows, counts } = read(store, { onlyAttention: true })
    assert.deepEqual([rows.map(({ host_id }) => host_id), counts.hosts], [['app-2'], 2])
  })

  it('accepts at most 200 characters', t => {
    assert.equal(read(newStore(t), { text: 'x'.repeat(10_000) }).filter.text.length, 200)
  })
})

describe('the pages of the fleet', () => {
  const HOSTS = 2 * ROWS_ON_A_PAGE + 5
  const many = (t: TestContext): Store => {
    const store = newStore(t)
    store.db.exec('BEGIN')
    insertReports(store, { hosts: HOSTS, each: 1 })
    store.db.exec('COMMIT')
    return store
  }

  it('list each host once', t => {
    const store = many(t)
    const pages = [1, 2, 3].map(page => read(store, { page }))
    assert.deepEqual(
      pages.map(({ rows, pages }) => [rows.length, pages]),
      [
        [100, 3],
        [100, 3],
        [5, 3],
      ],
    )
    const ids = pages.flatMap(({ rows }) => rows.map(({ host_id }) => host_id))
    assert.deepEqual(
      ids,
      Array.from({ length: HOSTS }, (_, nth) => `host-${nth}`),
    )
  })

  it('end with the last one', t => {
    const { filter, rows } = read(many(t), { page: 99 })
    assert.deepEqual([filter.page, rows.length], [3, 5])
  })
})

describe('the fleet in a data folder of an earlier hub', () => {
  it('is complete', t => {
    const folder = join(newFolder(t), 'data')
    const before = openStore(folder)
    for (const host_id of ['a', 'b']) report(before, { host_id })
    const expected = read(before)
    before.db.exec("DROP TABLE fleet; DELETE FROM settings WHERE name LIKE 'fleet_seq%'")
    before.close()
    const store = openStore(folder)
    t.after(() => store.close())
    assert.deepEqual(read(store), expected)
    report(store, { host_id: 'c' })
    assert.equal(read(store).counts.hosts, 3)
  })
})

/** Counts the steps that SQLite itself reports, because a duration depends on the machine. */
describe('a page of a large fleet', () => {
  it('reads only the reports of its own rows', t => {
    const store = newStore(t)
    insertReports(store, { hosts: byExtent({ sample: 300, ci: 3000 }), each: 3 })
    read(store)
    for (const filter of [{}, { page: 2 }, { text: 'host-1' }, { onlyAttention: true }, { text: '1.0', page: 2 }]) {
      const plans = plansOf(store, () => read(store, filter))
      const ofReports = plans.filter(detail => /(SCAN|SEARCH) (reports|last|good)\b/.test(detail))
      assert.equal(ofReports.length, 3, plans.join('\n'))
      for (const detail of ofReports)
        assert.match(detail, /USING INTEGER PRIMARY KEY|^SEARCH reports$/, plans.join('\n'))
      const page = plans.find(detail =>
        /SCAN fleet USING INDEX fleet_in_order|SEARCH fleet USING INDEX fleet_in_order/.test(detail),
      )
      assert.ok(page, plans.join('\n'))
    }
  })
})

function newStore(t: TestContext): Store {
  const store = openStore(join(newFolder(t), 'data'))
  t.after(() => store.close())
  return store
}

function read(store: Store, filter: Partial<FleetFilter> = {}): FleetView {
  return readFleet(store, { text: '', onlyAttention: false, page: 1, ...filter })
}

async function publish(store: Store, slug: string): Promise<void> {
  const bytes = Buffer.from(slug)
  await publishArchive(store, bytes, { kind: 'plugin', slug, version: '1.0.0', signingSecret: SIGNING_SECRET })
}

/** Inserts reports without the hub, which applies them to its table `fleet` when it reads the fleet. */
function insertReports({ db }: Store, { hosts, each }: { readonly hosts: number; readonly each: number }): void {
  db.exec(`INSERT INTO reports (id, deployer_id, kind, slug, version, host_id, status, started_at, completed_at, created_at)
    WITH RECURSIVE host(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM host WHERE n < ${hosts - 1}),
                   deployment(m) AS (VALUES (1) UNION ALL SELECT m + 1 FROM deployment WHERE m < ${each})
    SELECT n || '-' || m, 'alice', 'plugin', 'hello', '1.' || m || '.0', 'host-' || n, 'success',
           '2026-01-0' || m || 'T00:00:00Z', '2026-01-0' || m || 'T00:00:00Z', '2026-01-0' || m || 'T00:00:00Z'
    FROM deployment, host`)
}
