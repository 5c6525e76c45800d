import assert from 'node:assert/strict'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { listHost, readLocalReport } from '../harness/evidence.ts'
import { type HostStage, healthcheck, openOldHost, planWith, RESTART, rollBack, unitChanges } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const RECORD = '.hub-deploy/installed.json'

let stage: HostStage
/** 2.0.0 is installed and runs as greeter.service; 1.0.0 is its snapshot. */
beforeEach(async () => {
  stage = await openOldHost()
  stage.standIns.setState('greeter.service', 'active')
  stage.writeHostConfig('version: 1\nsupervisor: systemd\n')
  stage.writePlan(planWith(RESTART))
  assert.equal((await stage.deployHere()).outputs['outcome'], 'success')
  assert.equal(stage.standIns.running(), '2.0.0')
})
afterEach(() => stage.close())

function rollBackHere(inputs: Record<string, string> = {}, run: Partial<ActionRun> = {}): Promise<ActionResult> {
  const env = { PATH: stage.standIns.path }
  return rollBack(stage, { 'host-config': 'host-config.yaml', ...inputs }, { env, ...run })
}

describe('a rollback of a service', () => {
  it('restarts the service and checks its health, without a plan', { skip: ONLY_IN_CI }, async () => {
    const check = stage.standIns.add('check', 'grep -q 1.0.0 running')
    stage.writeHostConfig(
      `version: 1\nsupervisor: systemd\nplugins: {greeter: {unit: greeter.service, healthcheck: {command: [${check}]}}}\n`,
    )
    const result = await rollBackHere()
    assert.equal(result.outputs['outcome'], 'success', result.log)
    assert.equal(stage.standIns.running(), '1.0.0')
    assert.deepEqual(unitChanges(stage), ['restart greeter.service', 'restart greeter.service'])
    const steps = readLocalReport(result).steps.map(({ action }) => action)
    assert.deepEqual(steps, ['install_plugin', 'restart', 'healthcheck'])
  })

  it('restarts the unit that a template names, or else the unit of the whole project', {
    skip: ONLY_IN_CI,
  }, async () => {
    assert.equal((await rollBackHere()).outputs['outcome'], 'success')
    stage.standIns.setState('greeter.service', 'inactive')
    stage.writeHostConfig('version: 1\nsupervisor: systemd\nsystemd: {project_unit: app.service}\n')
    assert.equal((await rollBackHere({ 'to-version': '2.0.0' })).outputs['outcome'], 'success')
    assert.deepEqual(unitChanges(stage).slice(1), ['restart greeter.service', 'restart app.service'])
  })

  it('restarts no service that the host config does not name, and says so', async () => {
    stage.standIns.setState('greeter.service', 'inactive')
    const result = await rollBackHere()
    assert.equal(result.outputs['outcome'], 'success', result.log)
    assert.match(result.log, /::warning::The unit greeter\.service is not running/)
    assert.deepEqual(unitChanges(stage).slice(1), [])
  })

  it('runs the steps of a plan instead, if there is one', { skip: ONLY_IN_CI }, async () => {
    stage.writePlan(planWith('action: stop, plugin: greeter', 'action: start, plugin: greeter'))
    const result = await rollBackHere({ 'install-plan': 'install.yaml' })
    assert.equal(result.outputs['outcome'], 'success', result.log)
    assert.deepEqual(unitChanges(stage).slice(1), ['stop greeter.service', 'start greeter.service'])
  })

  it('refuses a plan for another id before it changes anything', { skip: ONLY_IN_CI }, async () => {
    stage.writePlan(planWith().replace('plugin: greeter,', 'plugin: other,'))
    const { outputs } = await rollBackHere({ 'install-plan': 'install.yaml' })
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'invalid_plan'])
  })

  it('restores the version that it was replacing, and the snapshot, when the restored version is unhealthy', {
    skip: ONLY_IN_CI,
  }, async () => {
    const check = stage.standIns.add('check', 'grep -q 2.0.0 running')
    stage.writeHostConfig(
      `version: 1\nsupervisor: systemd\nplugins: {greeter: {unit: greeter.service, healthcheck: {command: [${check}]}}}\n`,
    )
    stage.writePlan(planWith(RESTART, healthcheck({ timeout: 2 })))
    const before = listHost(stage.root)
    const result = await rollBackHere({ 'install-plan': 'install.yaml' })
    const { outputs, log } = result
    assert.deepEqual(
      [outputs['outcome'], outputs['error-code'], outputs['running-version'], outputs['changed']],
      ['rolled_back', 'unhealthy', '2.0.0', 'false'],
      log,
    )
    assert.equal(stage.standIns.running(), '2.0.0')
    assert.deepEqual(listHost(stage.root), before)
    const { rollback } = readLocalReport(result)
    assert.deepEqual(rollback, { restored: true, problems: [], verified: true, healthy: true, stopped: true })
    assert.match(result.summary, /greeter 1\.0\.0 was rolled back on host-1; 2\.0\.0 is running again/)
  })

  it('is undone when it is cancelled', { skip: ONLY_IN_CI }, async () => {
    stage.writePlan(planWith('action: provision, plugin: greeter'))
    const hang = stage.standIns.add('hang', 'echo hanging; exec sleep 3600')
    stage.writeHostConfig(`version: 1\nprovision: {greeter: {command: [${hang}]}}\n`)
    const { [RECORD]: record, ...before } = listHost(stage.root)
    let pid = 0
    const result = await rollBackHere(
      { 'install-plan': 'install.yaml' },
      {
        env: { PATH: stage.standIns.path },
        onStart: started => {
          pid = started
        },
        onLog: text => {
          if (/plugins\/greeter has the tree digest/.test(text)) process.kill(pid, 'SIGINT')
        },
      },
    )
    assert.deepEqual(
      [result.outputs['outcome'], result.outputs['error-code']],
      ['rolled_back', 'cancelled'],
      result.log,
    )
    const { [RECORD]: after, ...left } = listHost(stage.root)
    assert.deepEqual(left, before)
    assert.equal(after, record)
  })

  it('starts a service that does not run, and restarts none, when nothing changes', { skip: ONLY_IN_CI }, async () => {
    stage.writeHostConfig('version: 1\nsupervisor: systemd\nplugins: {greeter: {unit: greeter.service}}\n')
    const unchanged = await rollBackHere({ 'to-version': '2.0.0' })
    assert.deepEqual([unchanged.outputs['outcome'], unchanged.outputs['changed']], ['success', 'false'], unchanged.log)
    stage.standIns.setState('greeter.service', 'inactive')
    await rollBackHere({ 'to-version': '2.0.0' })
    assert.deepEqual(unitChanges(stage).slice(1), ['start greeter.service'])
  })
})
