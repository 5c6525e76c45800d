import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { applyChanges } from '../../../src/install/changes/change.ts'
import { fileOf, readHostRecord, recordInstalled, recordPending } from '../../../src/install/host/record.ts'
import { recover } from '../../../src/install/recovery/recover.ts'
import { describeMoving } from '../../../src/install/transaction/rollback.ts'
import { rowOf, snapshotOf } from '../prepared-host.ts'
import { useStandIns } from '../services/stand-ins.ts'
import { announced, begun, makeScene, type SceneRecord, SNAPSHOT, UPDATE, undone } from './recovery-scene.ts'

const AT = '2026-01-02T03:04:07.000Z'
const RESTART: SceneRecord = { record: 'service', part: 'greeter', was_running: true }
const hostConfig = { path: 'host-config.yaml', text: 'version: 1\nsupervisor: systemd\n' }

/** A host with version 1.0.0, and the records of a run that installs 2.0.0. */
async function openScene(t: TestContext) {
  const scene = await makeScene(t)
  await recordInstalled(scene.layout, { rows: [rowOf({ version: '1.0.0' })], removed: [] })
  const file = fileOf(readHostRecord(scene.layout))
  const run: SceneRecord[] = [...begun(scene.sender), { record: 'host', file }, ...announced(UPDATE)]
  return { ...scene, host: { ...scene.host, hostConfig }, file, run }
}

describe('the recovery of a host whose record another process has changed', () => {
  it('finishes a commit, and removes no snapshot that the commit retains', async t => {
    const { layout, host, file, run, writeJournal } = await openScene(t)
    for (const change of UPDATE) await applyChanges(layout.root, [change])
    const row = rowOf({ snapshots: [snapshotOf('1-1.0.0', { version: '1.0.0' })] })
    writeJournal([...run, { record: 'commit', at: AT, rows: [row], discard: [] }])
    writeFileSync(layout.installed, JSON.stringify({ ...file, discard: [SNAPSHOT] }))
    await recover(host)
    assert.deepEqual([readHostRecord(layout).installed, readHostRecord(layout).discard], [[row], []])
    assert.ok(existsSync(join(layout.root, SNAPSHOT, 'main.py')))
    assert.ok(!existsSync(layout.journal))
  })

  it('finishes a commit, based on the record that the run had found', async t => {
    const { layout, host, run, writeJournal } = await openScene(t)
    for (const change of UPDATE) await applyChanges(layout.root, [change])
    writeJournal([...run, { record: 'commit', at: AT, rows: [rowOf()], discard: [] }])
    writeFileSync(layout.installed, '{')
    await recover(host)
    assert.deepEqual(readHostRecord(layout).installed, [rowOf()])
    assert.ok(!existsSync(layout.journal))
  })

  for (const [problems, pending] of [
    [['unit greeter.service could not be restarted.'], true],
    [[], undefined],
  ] as const)
    it(`lists ${pending ? 'a service' : 'no service'} as pending after a rollback ${problems.length === 0 ? 'without a problem' : 'with a problem'}`, async t => {
      const { layout, host, run, writeJournal } = await openScene(t)
      writeJournal([...run, ...rolledBack(problems)])
      writeFileSync(layout.installed, '{')
      await recover(host)
      assert.equal(readHostRecord(layout).installed[0]?.service_pending, pending)
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
    await recover(host)
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
    await recover(host)
    assert.deepEqual(reports().at(-1)?.rollback?.problems, [moving])
  })
})

describe('the recovery of a host whose record the run itself has changed', () => {
  it('leaves the record alone, so it still lists the service that the run could not restore', async t => {
    const { layout, host, run, writeJournal } = await openScene(t)
    writeJournal([...run, ...rolledBack([])])
    await recordPending(layout, () => true)
    const before = readFileSync(layout.installed, 'utf8')
    await recover({ ...host, hostConfig: undefined })
    assert.equal(readFileSync(layout.installed, 'utf8'), before)
    assert.ok(!readdirSync(layout.snapshots).includes('set-aside'))
  })
})

/** The records of a run that has restarted a service, rolled back, and ended with these problems. */
function rolledBack(problems: readonly string[]): SceneRecord[] {
  const rollback = { restored: true, problems: [...problems], verified: null, healthy: null }
  const end = { outcome: 'rolled_back' as const, changed: false, error: null, rollback, completed_at: AT }
  return [RESTART, ...undone([...UPDATE].reverse()), { record: 'end', end }]
}
