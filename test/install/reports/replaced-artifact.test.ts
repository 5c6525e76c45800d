import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { describe, it } from 'node:test'
import { recordInstalled } from '../../../src/install/host/installed/host-record.ts'
import { appendAudit } from '../../../src/install/reports/audit.ts'
import { wasSupplyReplaced } from '../../../src/install/reports/replaced-artifact.ts'
import { hostOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost, removedRowOf, reportOf, rowOf, snapshotOf } from '../prepared-host.ts'

const ORIGIN = { contract: 'project', slug: 'prj_ShopExample01' } as const
const PART = { shelf: 'plugins', id: 'pay' } as const
const supply = (id: string) => ({ from: 'https://hub.example.org plugin pay', id: hash('sha256', id) })
const [OLD, NEW] = [supply('old'), supply('new')]

const row = (id: string, source = OLD) => rowOf({ ...ORIGIN, id, source })
const removed = (id: string, ...sources: (typeof OLD)[]) =>
  removedRowOf({
    ...ORIGIN,
    id,
    snapshots: sources.map((source, index) => snapshotOf(`${index + 1}-1.0.0`, { source })),
  })

/** The content of the host record for `pay`. In each case, the audit log has the old bytes for `pay`. */
const hosts: [known: string, isReplaced: boolean, rows: Partial<Parameters<typeof recordInstalled>[1]>][] = [
  ['the part has its bytes', false, { rows: [row('pay')] }],
  ['the part has other bytes', true, { rows: [row('pay', NEW)] }],
  ['the part was removed with its bytes', false, { removed: [removed('pay', NEW, OLD)] }],
  ['the part was removed with other bytes', true, { removed: [removed('pay', OLD, NEW)] }],
  ['the part has no record', true, {}],
]

describe('the artifact of a source', () => {
  for (const [known, isReplaced, { rows = [], removed: gone = [] }] of hosts)
    it(`was ${isReplaced ? '' : 'not '}replaced if ${known}`, async t => {
      const layout = await prepareTemporaryHost(t)
      const sources = [{ part: 'plugins/pay', ...OLD }]
      await appendAudit(hostOf(layout), reportOf({ ...ORIGIN, kind: null, id: null, sources }))
      await recordInstalled(layout, { rows, removed: gone })
      assert.equal(wasSupplyReplaced(layout, { origin: ORIGIN, part: PART, source: OLD }), isReplaced)
      assert.equal(wasSupplyReplaced(layout, { origin: ORIGIN, part: PART, source: supply('never') }), false)
      const other = { ...ORIGIN, slug: 'prj_AnotherOne0001' }
      assert.equal(wasSupplyReplaced(layout, { origin: other, part: PART, source: OLD }), false)
    })

  it('was replaced if another part had it before and none has it now', async t => {
    const layout = await prepareTemporaryHost(t)
    const wanted = { origin: ORIGIN, part: { shelf: 'plugins', id: 'till' }, source: OLD } as const
    await appendAudit(hostOf(layout), reportOf({ ...ORIGIN, sources: [{ part: 'plugins/pay', ...OLD }] }))
    await recordInstalled(layout, { rows: [row('pay')], removed: [] })
    assert.equal(wasSupplyReplaced(layout, wanted), false)
    await recordInstalled(layout, { rows: [row('pay', NEW)], removed: [] })
    assert.equal(wasSupplyReplaced(layout, wanted), true)
  })
})
