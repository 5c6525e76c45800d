import assert from 'node:assert/strict'
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { type ActionResult, type ActionRun, runAction } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { makeStandIns, type StandIns } from '../../install/services/stand-ins.ts'
import {
  acceptedReports,
  assertNothingStrays,
  assertSettled,
  commandsIn,
  listHost,
  readLocalReport,
} from '../harness/evidence.ts'
import { openRetainingHost, removePart, rollBack, type Stage, writeFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

function summaryOf({ outputs }: ActionResult): string {
  const names = ['outcome', 'changed', 'version', 'previous-version', 'running-version', 'error-code']
  return names.map(name => outputs[name]).join(' ')
}

function recordOf({ root }: Stage) {
  return JSON.parse(readFileSync(join(root, '.hub-deploy/installed.json'), 'utf8'))
}

function placeOf({ root }: Stage): string {
  return join(root, 'plugins/greeter')
}

describe('a removal', () => {
  it('moves the plugin with the files of the host to the snapshots, and tells no hub', async t => {
    const stage = await openRetainingHost(t)
    writeFileSync(join(stage.root, 'plugins/greeter.env'), 'A=1\n')
    const reports = acceptedReports(stage).length
    const result = await removePart(stage)
    assert.equal(result.exitCode, 0, result.log)
    assert.equal(summaryOf(result), 'success true  2.0.0  ')
    assert.equal(result.outputs['install-path'], placeOf(stage))
    assert.equal(existsSync(placeOf(stage)), false)
    assert.equal(readFileSync(join(stage.root, 'plugins/greeter.env'), 'utf8'), 'A=1\n')
    const snapshot = join(stage.root, '.hub-deploy/snapshots/plugins/greeter/2-2.0.0')
    assert.equal(readFileSync(join(snapshot, 'data/visitors'), 'utf8'), '2.0.0\n')
    const { installed, removed } = recordOf(stage)
    assert.deepEqual(installed, [])
    assert.deepEqual(
      removed[0].snapshots.map(({ name }: { name: string }) => name),
      ['1-1.0.0', '2-2.0.0'],
    )
    const report = readLocalReport(result)
    assert.deepEqual([report.removed, report.version, report.running_version], [true, null, null])
    assert.equal(
      report.states.map(({ state }) => state).join(' '),
      'pending finding_snapshots verifying_snapshots loading_plan resolving_sequence installing healthchecking succeeded',
    )
    assert.deepEqual(
      report.steps.map(({ id, action, status }) => `${id} ${action} ${status}`),
      ['plugins/greeter remove done'],
    )
    assert.equal(acceptedReports(stage).length, reports)
    assert.match(result.summary, /^### 🗑️ greeter 2\.0\.0 was removed from host-1, and is kept as a snapshot\n/)
    assert.match(result.summary, /the fleet view of the hub keeps the last report/)
    assert.match(commandsIn(result.log, 'warning').join(), /was not stopped/)
    assertNothingStrays(stage.root)
    await assertSettled(stage.root, () => removePart(stage))
  })

  it('is undone by a rollback, with the files of the host', async t => {
    const stage = await openRetainingHost(t)
    const before = listHost(placeOf(stage))
    await removePart(stage)
    const result = await rollBack(stage)
    assert.equal(summaryOf(result), 'success true 2.0.0  2.0.0 ', result.log)
    assert.deepEqual(listHost(placeOf(stage)), before)
    assert.equal(recordOf(stage).removed, undefined)
  })

  it('keeps a tree that was changed on the host, which only a rollback that names it restores', async t => {
    const stage = await openRetainingHost(t)
    appendFileSync(join(placeOf(stage), 'src/main.py'), '# of the host\n')
    assert.equal(summaryOf(await removePart(stage)), 'success true  2.0.0  ')
    assert.equal(summaryOf(await rollBack(stage, { 'dry-run': 'true' })), 'success false 1.0.0   ')
    const result = await rollBack(stage, { 'to-version': '2.0.0' })
    assert.equal(result.outputs['outcome'], 'success', result.log)
    assert.match(readFileSync(join(placeOf(stage), 'src/main.py'), 'utf8'), /of the host/)
  })

  it('leaves its kept paths for the next deployment of the same slug', async t => {
    const stage = await openRetainingHost(t)
    await removePart(stage)
    const result = await stage.deploy()
    assert.equal(summaryOf(result), 'success true 2.0.0  2.0.0 ', result.log)
    assert.match(commandsIn(result.log, 'notice').join(), /The host's own files .*data.* return to plugins\/greeter/)
    assert.equal(readFileSync(join(placeOf(stage), 'data/visitors'), 'utf8'), '2.0.0\n')
  })

  it('of what is not installed succeeds without a change', async t => {
    const stage = await openRetainingHost(t)
    await removePart(stage)
    const before = recordOf(stage)
    for (const inputs of [{}, { id: 'other' }, { kind: 'service' }]) {
      const result = await removePart(stage, inputs)
      assert.equal(summaryOf(result), 'success false    ', result.log)
      assert.match(result.summary, /^### ✅ (greeter|other) is not installed on host-1\n/)
    }
    assert.deepEqual(recordOf(stage), before)
  })

  it('changes nothing in a dry run', async t => {
    const stage = await openRetainingHost(t)
    const before = listHost(stage.root)
    const result = await removePart(stage, { 'dry-run': 'true' })
    assert.equal(summaryOf(result), 'success false  2.0.0 2.0.0 ', result.log)
    assert.match(result.summary, /^### 🔎 Dry run: the removal of greeter 2\.0\.0 from host-1 would remove 1 part\n/)
    assert.deepEqual(listHost(stage.root), before)
  })

  it('refuses a directory that this action did not install, and one of a project', async t => {
    const stage = await openRetainingHost(t)
    const mine = join(stage.root, 'plugins/mine/src')
    mkdirSync(mine, { recursive: true })
    assert.equal(summaryOf(await removePart(stage, { id: 'mine' })), 'failed false    place_taken')
    assert.ok(existsSync(mine))
    const path = join(stage.root, '.hub-deploy/installed.json')
    writeFileSync(path, readFileSync(path, 'utf8').replace('"marketplace"', '"project"'))
    const result = await removePart(stage)
    assert.equal(result.outputs['error-code'], 'place_taken', result.log)
    assert.ok(existsSync(placeOf(stage)))
  })

  it('refuses another plugins directory than the one of the plugin', { skip: ONLY_IN_CI }, async t => {
    const stage = await openRetainingHost(t)
    const result = await removePart(stage, { 'plugins-directory': 'app/plugins' })
    assert.equal(result.outputs['error-code'], 'invalid_input', result.log)
    assert.ok(existsSync(placeOf(stage)))
  })

  it('finds a plugin that the operator has moved to the directory of the host framework', async t => {
    const stage = await openRetainingHost(t)
    writeFiles(stage.root, {
      'integration.yaml': 'plugins: {directory: app}\n',
      'app/other/plugin.yaml': 'name: other\n',
    })
    renameSync(placeOf(stage), join(stage.root, 'app/greeter'))
    const result = await removePart(stage)
    assert.equal(summaryOf(result), 'success true  2.0.0  ', result.log)
    assert.deepEqual(readdirSync(join(stage.root, 'app')), ['other'])
  })

  it('is not named by the status action, which still lists the snapshots', { skip: ONLY_IN_CI }, async t => {
    const stage = await openRetainingHost(t)
    await removePart(stage)
    const inputs = { 'project-root': stage.root, 'fail-on-drift': 'true' }
    const { outputs, exitCode, log } = await runAction({ action: 'status', workspace: stage.workspace, inputs })
    assert.equal(exitCode, 0, log)
    assert.deepEqual([outputs['installed'], outputs['drift']], ['[]', 'false'])
    assert.equal(JSON.parse(outputs['snapshots'] ?? '').length, 2)
  })

  it('does not let the hub pass a version off as new that this host had replaced before', async t => {
    const stage = await openRetainingHost(t)
    const old = await openRetainingHost(t, ['1.0.0'])
    await removePart(stage)
    const replayed = await stage.deploy({ 'hub-url': old.hub.url, 'api-key': old.apiKey })
    assert.equal(replayed.outputs['error-code'], 'downgrade_refused', replayed.log)
  })
})

describe('a removal of a plugin with a service', () => {
  it('stops the service first', { skip: ONLY_IN_CI }, async t => {
    const { stage, standIns, remove } = await openServed(t)
    const result = await remove()
    assert.equal(result.exitCode, 0, result.log)
    assert.deepEqual(standIns.changes(), [['systemctl', 'stop', 'greeter.service']])
    assert.equal(standIns.stateOf('greeter.service'), 'inactive')
    assert.deepEqual(commandsIn(result.log, 'warning'), [])
    await rollBack(stage, { 'host-config': 'host.yaml' }, { env: { PATH: standIns.path } })
    assert.equal(standIns.stateOf('greeter.service'), 'active')
  })

  it('changes nothing if the service cannot be stopped', { skip: ONLY_IN_CI }, async t => {
    const { stage, standIns, remove } = await openServed(t)
    const before = listHost(placeOf(stage))
    standIns.before('systemctl', 'stop', 'begin; exit 5')
    const result = await remove()
    assert.equal(result.outputs['outcome'], 'rolled_back', result.log)
    assert.deepEqual([result.outputs['error-code'], result.outputs['failed-step']], ['step_failed', 'plugins/greeter'])
    assert.deepEqual(listHost(placeOf(stage)), before)
    assert.equal(standIns.stateOf('greeter.service'), 'active')
    assert.match(result.summary, /^### ↩️ The removal of greeter was rolled back on host-1; 2\.0\.0 is /)
  })

  it('puts the plugin back if it is cancelled', { skip: ONLY_IN_CI }, async t => {
    const { stage, standIns, remove } = await openServed(t)
    const before = listHost(placeOf(stage))
    standIns.before('systemctl', 'stop', 'kill -INT "$(cat runner-pid)"; sleep 1')
    const result = await remove({ onStart: pid => writeFileSync(join(standIns.bin, '../runner-pid'), String(pid)) })
    assert.equal(result.outputs['error-code'], 'cancelled', result.log)
    assert.deepEqual(listHost(placeOf(stage)), before)
    assert.equal(standIns.stateOf('greeter.service'), 'active')
  })
})

async function openServed(t: TestContext) {
  const stage = await openRetainingHost(t)
  const standIns: StandIns = makeStandIns()
  t.after(() => standIns.close())
  standIns.setState('greeter.service', 'active')
  writeFiles(stage.workspace.path, {
    'host.yaml': 'version: 1\nsupervisor: systemd\nplugins: {greeter: {unit: greeter.service}}\n',
  })
  const env = { PATH: standIns.path }
  const remove = (run: Partial<ActionRun> = {}) => removePart(stage, { 'host-config': 'host.yaml' }, { env, ...run })
  return { stage, standIns, remove }
}
