import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { catchUpWithReports } from '../../hub/marketplace/fleet.ts'
import { readFleet } from '../../hub/marketplace/fleet-view.ts'
import { listHosts, pruneReports, recordReport } from '../../hub/marketplace/reports.ts'
import { listDeployments, pruneProjectReports, recordProjectReport } from '../../hub/project/reports.ts'
import { openStore, type Store } from '../../hub/store.ts'
import { inTransaction } from '../../hub/transactions.ts'
import { plansOf } from './query-plans.ts'
import { hub } from './run-cli.ts'
import { newFolder } from './running-hub.ts'

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
    const old = {
      id: 'old',
      status: 'failed',
      completed_at: '2026-01-01T00:05:00Z',
      created_at: '2026-01-01T00:06:00Z',
    }
    store.db.prepare(PLAIN_REPORT).run(old)
    report(store, 4, { status: 'failed' })
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

const isOfSuccess = (detail: string): boolean => detail.includes('INDEX successes_by_completion')

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
    for (const detail of newest) assert.match(detail, /USING COVERING INDEX reports_by_completion/)
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
