import assert from 'node:assert/strict'
import { existsSync, rmSync, writeFileSync } from 'node:fs'
import { describe, it, type TestContext } from 'node:test'
import { applyChanges } from '../../../src/install/changes/change.ts'
import { readHostRecord, recordInstalled } from '../../../src/install/host/record.ts'
import { recoverDeadRun } from '../../../src/install/recovery/recover.ts'
import { describeMoving } from '../../../src/install/transaction/rollback.ts'
import { rowOf } from '../prepared-host.ts'
import { useStandIns } from '../services/stand-ins.ts'
import { announced, begun, makeScene, type SceneRecord, UPDATE, undone } from './recovery-scene.ts'

const AT = '2026-01-02T03:04:07.000Z'
const RESTART: SceneRecord = { record: 'service', part: 'greeter', was_running: true }
const hostConfig = { path: 'host-config.yaml', text: 'version: 1\nsupervisor: systemd\nplugins: {greeter: {}}\n' }

/** A host with version 1.0.0, and the records of a run that installs 2.0.0. */
async function openScene(t: TestContext) {
  const scene = await makeScene(t)
  await recordInstalled(scene.layout, { rows: [rowOf({ version: '1.0.0' })], removed: [] })
  const run: SceneRecord[] = [...begun(scene.sender), ...announced(UPDATE)]
  return { ...scene, host: { ...scene.host, hostConfig }, run }
}

describe('the recovery of a host whose record cannot be read', () => {
  for (const [name, commits, rows] of [
    ['restores the files of a run that had not committed', [], []],
    [
      'keeps the files of a commit',
      [{ record: 'commit', at: AT, rows: [rowOf()], removed: [], discard: [] }],
      [rowOf()],
    ],
  ] as const)
    it(`${name}, and waits until the operator has moved the record away`, async t => {
      const { layout, host, run, plugins, writeJournal } = await openScene(t)
      const old = plugins()
      for (const change of UPDATE) await applyChanges(layout.root, [change])
      const expected = commits.length > 0 ? plugins() : old
      writeJournal([...run, ...(commits as readonly SceneRecord[])])
      writeFileSync(layout.installed, '{')
      const refused = { code: 'inconsistent', message: /installed\.json is not a record.* move it away/ }
      await assert.rejects(recoverDeadRun(host), refused)
      assert.deepEqual([plugins(), existsSync(layout.journal)], [expected, true])
      rmSync(layout.installed)
      await recoverDeadRun(host)
      assert.deepEqual([plugins(), existsSync(layout.journal)], [expected, false])
      assert.deepEqual(readHostRecord(layout).installed, rows)
    })
})

describe('the recovery of a cancelled run that found damage and had no time for its service', () => {
  it('names the damage, but not the service that it has restored', async t => {
    const { layout, host, run, writeJournal, reports } = await openScene(t)
    useStandIns(t).setState('greeter.service', 'active')
    const damage = 'The restored files could not be compared with their record: it is damaged.'
    const left = 'A cancelled run had no time to restore unit greeter.service: its post step or the next run does that.'
    const [service, ...undo] = rolledBack([])
    const rollback = { restored: true, problems: [damage, left], verified: false, healthy: null }
    const end = { outcome: 'inconsistent' as const, changed: false, error: null, rollback, completed_at: AT }
    writeJournal([...run, service as SceneRecord, ...undo.slice(0, -1), { record: 'end', end, unfinished: true }])
    await recoverDeadRun(host)
    assert.deepEqual(reports().at(-1)?.rollback?.problems, [damage])
    assert.ok(!existsSync(layout.journal))
  })
})

describe('the recovery of a cancelled run that found files moving and had no time for its service', () => {
  it('names these files, but not the service that it has restored', async t => {
    const { host, run, writeJournal, reports } = await openScene(t)
    useStandIns(t).setState('greeter.service', 'active')
    const moving = describeMoving(['plugins/greeter/main.py', 'plugins/greeter/README.md'])
    const left = 'A cancelled run had no time to restore unit greeter.service: its post step or the next run does that.'
    const [service, ...undo] = rolledBack([])
    const rollback = { restored: true, problems: [moving, left], verified: null, healthy: null }
    const end = { outcome: 'rolled_back' as const, changed: false, error: null, rollback, completed_at: AT }
    writeJournal([...run, service as SceneRecord, ...undo.slice(0, -1), { record: 'end', end, unfinished: true }])
    await recoverDeadRun(host)
    assert.deepEqual(reports().at(-1)?.rollback?.problems, [moving])
  })
})

/** The records of a run that has restarted a service, rolled back, and ended with these problems. */
function rolledBack(problems: readonly string[]): SceneRecord[] {
  const rollback = { restored: true, problems: [...problems], verified: null, healthy: null }
  const end = { outcome: 'rolled_back' as const, changed: false, error: null, rollback, completed_at: AT }
  return [RESTART, ...undone([...UPDATE].reverse()), { record: 'end', end }]
}
