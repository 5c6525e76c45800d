import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { readdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { auditPath, type Layout } from '../../../src/install/host/layout.ts'
import { recordInstalled } from '../../../src/install/host/record.ts'
import { appendAudit, wasReplaced, wasSupplyReplaced } from '../../../src/install/reports/audit.ts'
import { hostOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost, removedRowOf, reportOf, rowOf, snapshotOf } from '../prepared-host.ts'

const MAX_BYTES = 16 * 1024 * 1024

function auditFiles({ own }: Layout): string[] {
  return readdirSync(own).filter(name => name.startsWith('audit'))
}

describe('the audit log', () => {
  it('begins a new file at 16 MiB, keeps four, and loses no lines except those of the oldest', async t => {
    const layout = await prepareTemporaryHost(t)
    for (let file = 1; file <= 12; file++) {
      writeFileSync(auditPath(layout), `{"file":${file}}\n`.padEnd(MAX_BYTES, '\n'))
      await appendAudit(hostOf(layout), reportOf({ version: `${file}.0.0` }))
    }
    const rotated = auditFiles(layout).filter(name => name !== 'audit.jsonl')
    const first = rotated.map(name => [
      /^audit-(\d+)-[0-9a-f]{8}\.jsonl$/.exec(name)?.[1],
      readFileSync(join(layout.own, name), 'utf8').split('\n', 1)[0],
    ])
    assert.deepEqual(Object.fromEntries(first), { 10: '{"file":10}', 11: '{"file":11}', 12: '{"file":12}' })
    const lines = readFileSync(auditPath(layout), 'utf8').trim().split('\n')
    assert.deepEqual(
      lines.map(line => JSON.parse(line).version),
      ['12.0.0'],
    )
  })

  it('does not begin a new file for a line that the full one already contains', async t => {
    const layout = await prepareTemporaryHost(t)
    await appendAudit(hostOf(layout), reportOf())
    const line = readFileSync(auditPath(layout), 'utf8')
    writeFileSync(auditPath(layout), `${'\n'.repeat(MAX_BYTES)}${line}`)
    await appendAudit(hostOf(layout), reportOf())
    assert.deepEqual(auditFiles(layout), ['audit.jsonl'])
  })

  it('is not searched in a file that no run can have written', async t => {
    const layout = await prepareTemporaryHost(t)
    const artifact = { origin: { contract: 'marketplace', slug: 'greeter' }, sha256: 'cd'.repeat(32) } as const
    writeFileSync(auditPath(layout), '')
    truncateSync(auditPath(layout), 3 * 1024 ** 3)
    assert.equal(wasReplaced(layout, artifact), false)
  })

  it('still finds an artifact in a file that has been rotated', async t => {
    const layout = await prepareTemporaryHost(t)
    const sha256 = 'cd'.repeat(32)
    await appendAudit(hostOf(layout), reportOf({ artifact_sha256: sha256 }))
    writeFileSync(auditPath(layout), '\n'.repeat(MAX_BYTES), { flag: 'a' })
    await appendAudit(hostOf(layout), reportOf())
    assert.equal(auditFiles(layout).length, 2)
    assert.equal(wasReplaced(layout, { origin: { contract: 'marketplace', slug: 'greeter' }, sha256 }), true)
  })
})

describe('appendAudit', () => {
  it('neither repeats a line nor continues one that was cut off', async t => {
    const layout = await prepareTemporaryHost(t)
    writeFileSync(auditPath(layout), '{"cut')
    for (const outcome of ['success', 'success', 'failed'] as const) {
      await appendAudit(hostOf(layout), reportOf({ outcome }))
    }
    const [cut, ...lines] = readFileSync(auditPath(layout), 'utf8').split('\n')
    assert.equal(cut, '{"cut')
    assert.deepEqual(
      lines.filter(line => line !== '').map(line => JSON.parse(line).outcome),
      ['success', 'failed'],
    )
  })

  it('does not repeat an outcome that a recovery finds again', async t => {
    const layout = await prepareTemporaryHost(t)
    const ends = ['2026-01-02T03:04:07.000Z', '2026-01-02T03:05:00.000Z'].map(completed_at => ({ completed_at }))
    for (const end of ends) await appendAudit(hostOf(layout), reportOf({ outcome: 'rolled_back', ...end }))
    assert.equal(readFileSync(auditPath(layout), 'utf8').trimEnd().split('\n').length, 1)
  })

  it('does not write through a symlink', async t => {
    const layout = await prepareTemporaryHost(t)
    const elsewhere = join(layout.root, 'elsewhere')
    writeFileSync(elsewhere, 'mine')
    symlinkSync(elsewhere, auditPath(layout))
    await assert.rejects(appendAudit(hostOf(layout), reportOf()), { code: 'ELOOP' })
    assert.equal(readFileSync(elsewhere, 'utf8'), 'mine')
  })
})

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
