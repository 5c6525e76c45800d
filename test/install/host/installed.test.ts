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
    for (const row of rows) await recordInstalled(layout, [row])
    const text = readFileSync(layout.installed, 'utf8')
    assert.equal(statSync(layout.installed).mode & 0o777, 0o600)
    const installed = readInstalled(layout)
    assert.deepEqual(installed, [rows[1], rows[2], rows[3]])
    assert.equal(findInstalled(installed, { shelf: 'plugins', id: 'greeter' })?.version, '3.0.0')
    assert.equal(findInstalled(installed, { shelf: 'extensions', id: 'another' }), undefined)
    for (const row of installed.toReversed()) await recordInstalled(layout, [row])
    assert.equal(readFileSync(layout.installed, 'utf8'), text)
  })

  it('that cannot be read at all is no damaged record', async t => {
    const layout = await prepareTemporaryHost(t)
    mkdirSync(layout.installed)
    assert.throws(
      () => readInstalled(layout),
      error => error instanceof DeploymentError && error.code === 'step_failed',
    )
  })

  for (const text of ['', '{', '[]', '{"schema":2,"installed":[]}', '{"schema":1,"installed":[{"id":"x"}]}']) {
    it(`is refused when it reads ${JSON.stringify(text)}, and not overwritten`, async t => {
      const layout = await prepareTemporaryHost(t)
      writeFileSync(layout.installed, text)
      for (const act of [async () => readInstalled(layout), () => recordInstalled(layout, [rowOf()])]) {
        await assert.rejects(act, error => error instanceof DeploymentError && error.code === 'inconsistent')
      }
      assert.equal(readFileSync(layout.installed, 'utf8'), text)
    })
  }
})

describe('the record of what was taken away', () => {
  it('is what is retained of it, in place of its row, until something comes there', async t => {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, [rowOf(), rowOf({ id: 'other' })])
    const removed = removedRowOf({ snapshots: [snapshotOf('1-2.0.0', { kept_paths: ['data'] })] })
    await recordInstalled(layout, [], [removed])
    assert.deepEqual(readHostRecord(layout), { installed: [rowOf({ id: 'other' })], removed: [removed] })
    await recordInstalled(layout, [rowOf({ id: 'other', version: '3.0.0' })])
    assert.deepEqual(readHostRecord(layout).removed, [removed])
    await recordInstalled(layout, [rowOf()])
    assert.deepEqual(readHostRecord(layout).removed, [])
  })

  it('is empty, and not written, where nothing is retained', async t => {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, [rowOf()], [removedRowOf({ id: 'other', snapshots: [] })])
    assert.deepEqual(readHostRecord(layout).removed, [])
    assert.deepEqual(Object.keys(JSON.parse(readFileSync(layout.installed, 'utf8'))), ['schema', 'installed'])
  })
})
