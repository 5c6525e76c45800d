import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, it, type TestContext } from 'node:test'
import {
  listDeployments,
  pruneProjectReports,
  readProjectState,
  recordProjectReport,
} from '../../../hub/project/reports.ts'
import { inTransaction, openStore, type Store } from '../../../hub/store.ts'
import { newFolder } from '../running-hub.ts'
import { plansOf } from '../stored-reports.ts'

const MINUTE_MS = 60_000
const NOW = Date.parse('2026-01-31T12:00:00Z')
const AFTERWARDS = new Date(NOW + 60 * MINUTE_MS)
const AHEAD = '2099-01-01T00:00:00Z'

describe('the reports of a project', () => {
  it('are not hidden by a report whose clock was years ahead', t => {
    const store = newStore(t)
    reportWithWrongClock(store)
    const { newest, success } = readProjectState(store, 'shop')
    assert.deepEqual([newest?.version, success?.version], ['1.2.0', '1.1.0'])
    assert.deepEqual(versionsIn(store), ['1.2.0', '1.1.0', '1.0.0'])
  })

  it('lose only that report when they are pruned', async t => {
    const store = newStore(t)
    reportWithWrongClock(store)
    assert.equal(await pruneProjectReports(store, AFTERWARDS), 1)
    assert.deepEqual(versionsIn(store), ['1.2.0', '1.1.0'])
  })

  it('are in the order of their arrival, even if the clock of the host or of the hub was set back', t => {
    const store = newStore(t)
    const at = (minute: number) => new Date(NOW + minute * MINUTE_MS).toISOString()
    report(store, { version: '1.0.0', completed_at: at(120) }, NOW)
    report(store, { version: '1.1.0', completed_at: at(-120) }, NOW - MINUTE_MS)
    report(store, { version: '1.2.0', completed_at: at(0) }, NOW - MINUTE_MS)
    report(store, { version: '1.3.0', completed_at: at(-1), status: 'failed' }, NOW)
    assert.deepEqual(versionsIn(store), ['1.3.0', '1.2.0', '1.1.0', '1.0.0'])
    const { newest, success } = readProjectState(store, 'shop')
    assert.deepEqual([newest?.version, success?.version], ['1.3.0', '1.2.0'])
  })

  it('are pruned in batches, between which other requests write', async t => {
    const store = newStore(t)
    const other = openStore(store.dataDir)
    t.after(() => other.close())
    inTransaction(store, () => {
      for (let n = 0; n < 6_000; n++) report(store, { version: `1.0.${n}` }, NOW - 10_000 + n)
    })
    const pruning = pruneProjectReports(store, AFTERWARDS)
    other.db.exec('PRAGMA busy_timeout = 0')
    report(other, { version: '2.0.0', project_id: 'other' }, NOW)
    assert.equal(await pruning, 5_999)
    assert.deepEqual(versionsIn(store), ['2.0.0', '1.0.5999'])
  })

  it('are found in their order by an index', t => {
    const store = newStore(t)
    const plans = plansOf(store, () => {
      listDeployments(store, 10)
      readProjectState(store, 'shop')
    })
    assert.deepEqual(
      plans.map(plan => /INDEX project_\w+_by_arrival|^SCAN project_reports$/.exec(plan)?.[0]),
      ['SCAN project_reports', 'INDEX project_reports_by_arrival', 'INDEX project_successes_by_arrival'],
    )
  })

  it('are compared by an index when they are pruned', t => {
    const store = newStore(t)
    report(store, {}, NOW)
    const plans = plansOf(store, () => pruneProjectReports(store, AFTERWARDS))
    assert.equal(plans.filter(plan => /INDEX project_\w+_by_arrival/.test(plan)).length, 2, plans.join('\n'))
    assert.ok(!plans.some(plan => plan.includes('TEMP B-TREE')), plans.join('\n'))
  })
})

/** A first success dated 2099, and then the report that really is the newest. */
function reportWithWrongClock(store: Store): void {
  report(store, { version: '1.0.0', completed_at: AHEAD }, NOW)
  const at = (minute: number) => NOW + minute * MINUTE_MS
  report(store, { version: '1.1.0', completed_at: new Date(at(1)).toISOString() }, at(1))
  report(store, { version: '1.2.0', completed_at: new Date(at(2)).toISOString(), status: 'failed' }, at(2))
}

type Changes = Partial<Parameters<typeof recordProjectReport>[1]>

function report(store: Store, changes: Changes, now: number): void {
  const completed_at = changes.completed_at ?? new Date(now).toISOString()
  const known = { project_id: 'shop', deployment_id: randomUUID(), version: '1.0.0', status: 'success' } as const
  recordProjectReport(store, { ...known, plugins: [], started_at: completed_at, completed_at, ...changes }, now)
}

function versionsIn(store: Store): string[] {
  return listDeployments(store, 10).map(({ version }) => version)
}

function newStore(t: TestContext): Store {
  const store = openStore(newFolder(t))
  t.after(() => store.close())
  return store
}
