import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { assertTouchesNoVersion, readLocalReport } from '../harness/evidence.ts'
import { type HostStage, openHostStage, planWith, versionFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: HostStage
beforeEach(async () => {
  stage = await openHostStage()
  stage.writeHostConfig('version: 1\nsupervisor: systemd\n')
})
afterEach(() => stage.close())

const record = (): string => join(stage.root, '.hub-deploy/installed.json')
const pending = (): unknown => JSON.parse(readFileSync(record(), 'utf8')).installed[0].service_pending

/**
 * Has an update to 2.0.0 rolled back. The process of 2.0.0 continues to run, because the restart for the old version
 * fails.
 */
async function leaveNewProcess(): Promise<void> {
  await stage.publish('1.0.0', versionFiles('1.0.0'))
  stage.writePlan(planWith('action: restart, plugin: greeter'))
  assert.equal((await stage.deployHere()).outputs['outcome'], 'success')
  await stage.publish('2.0.0', versionFiles('2.0.0'))
  stage.standIns.before('systemctl', 'restart', '[ -e once ] || begin; touch once; exit 1')
  const result = await stage.deployHere()
  assert.deepEqual([result.outputs['outcome'], readLocalReport(result).rollback?.healthy], ['rolled_back', false])
  assert.equal(stage.standIns.running(), '2.0.0')
}

async function redeployOld(): Promise<string> {
  const { outputs, log } = await stage.deployHere({ version: '1.0.0' })
  assert.ok(outputs['outcome'], log)
  return `${outputs['outcome']} ${outputs['changed']}`
}

describe('a service that a rollback could not restore', () => {
  for (const steps of sampled(
    [
      ['action: restart, plugin: greeter'],
      ['action: restart'],
      ['action: start, plugin: greeter'],
      ['action: stop, plugin: greeter', 'action: start, plugin: greeter'],
    ],
    1,
  )) {
    it(`is restarted by the next run, even if nothing changes (${steps.join('; ')})`, async () => {
      await leaveNewProcess()
      stage.standIns.before('systemctl', 'restart', ':')
      stage.writePlan(planWith(...steps))
      assert.equal(await redeployOld(), 'success false')
      assert.deepEqual([stage.standIns.running(), pending()], ['1.0.0', undefined])
      await assertTouchesNoVersion(stage.root, async () => {
        const before = stage.standIns.changes().length
        assert.equal(await redeployOld(), 'success false')
        assert.equal(stage.standIns.changes().length, before)
      })
    })
  }

  it('is restarted by a later run if no run has restored it yet', { skip: ONLY_IN_CI }, async () => {
    await leaveNewProcess()
    for (let run = 0; run < 2; run++) {
      assert.match(await redeployOld(), /^(?:failed|rolled_back) false$/)
      assert.equal(pending(), true)
    }
    stage.standIns.before('systemctl', 'restart', ':')
    assert.equal(await redeployOld(), 'success false')
    assert.equal(stage.standIns.running(), '1.0.0')
  })

  it('is restarted and checked by a run whose plan does neither', { skip: ONLY_IN_CI }, async () => {
    await leaveNewProcess()
    stage.standIns.before('systemctl', 'restart', ':')
    stage.writePlan(planWith())
    const { outputs, log } = await stage.deployHere({ version: '1.0.0' })
    assert.equal(outputs['outcome'], 'success', log)
    assert.match(log, /greeter is healthy again/)
    assert.deepEqual([stage.standIns.running(), pending()], ['1.0.0', undefined])
  })

  for (const [name, config] of Object.entries({
    'without a host config': '',
    'whose host config has no supervisor': 'version: 1\n',
  }))
    it(`is not forgotten by a run ${name}`, { skip: whyLeftToCi() }, async () => {
      await leaveNewProcess()
      stage.writePlan(planWith())
      stage.writeHostConfig(config)
      const inputs = { version: '1.0.0', ...(config === '' ? { 'host-config': '' } : {}) }
      const { outputs, log } = await stage.deployHere(inputs)
      assert.equal(outputs['outcome'], 'success', log)
      assert.deepEqual([stage.standIns.running(), pending()], ['2.0.0', true])
    })

  it('makes the host inconsistent if its record is damaged', async () => {
    await leaveNewProcess()
    const found = JSON.parse(readFileSync(record(), 'utf8'))
    writeFileSync(record(), JSON.stringify({ ...found, installed: [{ ...found.installed[0], service_pending: 7 }] }))
    const { outputs, log } = await stage.deployHere({ version: '1.0.0' })
    assert.equal(outputs['error-code'], 'inconsistent')
    assert.match(log, /installed\.json is not a record .*service_pending must be true/)
  })
})
