import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { describe, it } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { findInstalled, readHostRecord, readInstalled, recordInstalled } from '../../../src/install/host/installed.ts'
import { prepareTemporaryHost, removedRowOf, rowOf, snapshotOf } from '../prepared-host.ts'

describe('the record of what is installed', () => {
  it('is empty at first', async t => {
    assert.deepEqual(readInstalled(await prepareTemporaryHost(t)), [])
  })

  it('has one row for each place, 0600, the same bytes for the same rows', async t => {
    const layout = await prepareTemporaryHost(t)
    const rows = [rowOf(), rowOf({ kind: 'service' }), rowOf({ id: 'another' }), rowOf({ version: '3.0.0' })]
    for (const row of rows) await recordInstalled(layout, { rows: [row], removed: [] })
    const text = readFileSync(layout.installed, 'utf8')
    assert.equal(statSync(layout.installed).mode & 0o777, 0o600)
    const installed = readInstalled(layout)
    assert.deepEqual(installed, [rows[1], rows[2], rows[3]])
    assert.equal(findInstalled(installed, { shelf: 'plugins', id: 'greeter' })?.version, '3.0.0')
    assert.equal(findInstalled(installed, { shelf: 'extensions', id: 'another' }), undefined)
    for (const row of installed.toReversed()) await recordInstalled(layout, { rows: [row], removed: [] })
    assert.equal(readFileSync(layout.installed, 'utf8'), text)
  })

  it('that cannot be read is not reported as damaged', async t => {
    const layout = await prepareTemporaryHost(t)
    mkdirSync(layout.installed)
    assert.throws(
      () => readInstalled(layout),
      error => error instanceof DeploymentError && error.code === 'step_failed',
    )
  })

  for (const text of ['', '{', '[]', '{"schema":2,"installed":[]}', '{"schema":1,"installed":[{"id":"x"}]}']) {
    it(`is refused as ${JSON.stringify(text)}, and not overwritten`, async t => {
      const layout = await prepareTemporaryHost(t)
      writeFileSync(layout.installed, text)
      for (const act of [
        async () => readInstalled(layout),
        () => recordInstalled(layout, { rows: [rowOf()], removed: [] }),
      ]) {
        await assert.rejects(act, error => error instanceof DeploymentError && error.code === 'inconsistent')
      }
      assert.equal(readFileSync(layout.installed, 'utf8'), text)
    })
  }
})

describe('the record of a removed part', () => {
  it('replaces its row until something is installed there', async t => {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, { rows: [rowOf(), rowOf({ id: 'other' })], removed: [] })
    const removed = removedRowOf({ snapshots: [snapshotOf('1-2.0.0', { kept_paths: ['data'] })] })
    await recordInstalled(layout, { rows: [], removed: [removed] })
    assert.deepEqual(readHostRecord(layout), { installed: [rowOf({ id: 'other' })], removed: [removed] })
    await recordInstalled(layout, { rows: [rowOf({ id: 'other', version: '3.0.0' })], removed: [] })
    assert.deepEqual(readHostRecord(layout).removed, [removed])
    await recordInstalled(layout, { rows: [rowOf()], removed: [] })
    assert.deepEqual(readHostRecord(layout).removed, [])
  })

  it('is left out when no snapshot is retained', async t => {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, { rows: [rowOf()], removed: [removedRowOf({ id: 'other', snapshots: [] })] })
    assert.deepEqual(readHostRecord(layout).removed, [])
    assert.deepEqual(Object.keys(JSON.parse(readFileSync(layout.installed, 'utf8'))), ['schema', 'installed'])
  })
})
