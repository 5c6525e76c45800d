import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import { whyLeftToCi } from '../../extent.ts'
import { acceptedReports, listHost, listOwn, readLocalReport } from '../harness/evidence.ts'
import { readPid, waitForEnd } from '../harness/processes.ts'
import {
  type HostStage,
  hangSaying,
  healthcheck,
  openRunningHost,
  PROVISION,
  planWith,
  RESTART,
  RESTART_ALL,
  runningHostConfig,
  unitChanges,
} from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: HostStage
beforeEach(async () => {
  stage = await openRunningHost()
})
afterEach(() => stage.close())

const RECORD = '.hub-deploy/installed.json'

/** Runs an update that must end with the old version restored. Returns its local report and its result. */
async function rolledBack(code: string, step: string): Promise<[LocalReport, ActionResult]> {
  const before = listHost(stage.root)
  const result = await stage.deployHere()
  const { outputs } = result
  assert.deepEqual(
    [
      result.exitCode,
      outputs['outcome'],
      outputs['state'],
      outputs['error-code'],
      outputs['failed-step'],
      outputs['changed'],
    ],
    [1, 'rolled_back', 'rolled_back', code, step, 'false'],
    result.log,
  )
  const { [RECORD]: record = '', ...others } = listHost(stage.root)
  const restored = record.replace(/ *"service_pending": true,\n *"pending_services": \[[^\]]*\],\n/, '')
  assert.deepEqual({ ...others, [RECORD]: restored }, before)
  assert.equal(acceptedReports(stage).at(-1)?.status, 'rolled_back')
  for (const folder of ['staging', 'trash']) assert.deepEqual(listOwn(stage, folder), [])
  assert.ok(!existsSync(join(stage.root, '.hub-deploy/journal.jsonl')))
  return [readLocalReport(result), result]
}

describe('a new version that does not become healthy', () => {
  it('leaves the old version in place and running, and every report shows the evidence', {
    skip: ONLY_IN_CI,
  }, async () => {
    stage.writePlan(planWith(RESTART, healthcheck({ timeout: 20 })))
    const [report, { log, summary }] = await rolledBack('unhealthy', 's2')
    assert.equal(stage.standIns.running(), '1.0.0')
    assert.deepEqual(unitChanges(stage), ['restart greeter.service', 'restart greeter.service'])
    assert.deepEqual(report.rollback, { restored: true, problems: [], verified: true, healthy: true, stopped: true })
    for (const text of [report.error?.message, log, acceptedReports(stage).at(-1)?.error_message])
      assert.match(text ?? '', /still broken/)
    assert.match(summary, /still broken/)
    assert.match(summary, /^\*\*Now:\*\* 1\.0\.0, .*, healthy according to the checks of this plan\.$/m)
  })

  it('gets as many attempts as the plan says', { skip: ONLY_IN_CI }, async () => {
    stage.writePlan(planWith(RESTART, healthcheck({ timeout: 1, retries: 2 })))
    const [, { log }] = await rolledBack('unhealthy', 's2')
    assert.match(
      log,
      /In attempt 2 of 3, greeter 2\.0\.0 was not healthy: .*\n(?:.*\n)*.* was not healthy in 3 attempts of 1 s each: /,
    )
  })

  it('is reported along with an old version that is not healthy either', { skip: ONLY_IN_CI }, async () => {
    stage.standIns.add('check', hangSaying('nothing is well'))
    stage.writePlan(planWith(RESTART, healthcheck({ timeout: 10 })))
    const [report, { summary, log }] = await rolledBack('unhealthy', 's2')
    assert.deepEqual([report.rollback?.restored, report.rollback?.healthy], [true, false])
    assert.match(report.rollback?.problems.join() ?? '', /nothing is well/)
    assert.match(
      summary,
      /^### .*\n\n> \[!CAUTION\]\n.*1\.0\.0, which is installed again, is not healthy.*nothing is well/,
    )
    assert.match(log, /^::error .*nothing is well.*\n::error .*1\.0\.0, which is installed again.*nothing is well/m)
  })
})

describe('a failing step', () => {
  it('restores the services in reverse order after the files, and logs each of them', async () => {
    stage.writePlan(planWith(RESTART, RESTART_ALL, PROVISION))
    const [report, { log, summary }] = await rolledBack('step_failed', 's3')
    assert.match(
      summary,
      /\*\*Now:\*\* 1\.0\.0, all files as they were installed\.\n\n> \[!WARNING\]\n.*<code>s3<\/code> \(failed\)\.\n/,
    )
    assert.deepEqual(unitChanges(stage), [
      'restart greeter.service',
      'restart app.service',
      'restart app.service',
      'restart greeter.service',
    ])
    assert.equal(stage.standIns.running(), '1.0.0')
    assert.match(log, /^::group::rolling back[\s\S]*restart unit app\.service\n[\s\S]*restart unit greeter\.service\n/m)
    assert.match(report.error?.message ?? '', /exit code 4.*no database/)
    assert.equal(report.rollback?.healthy, null)
  })

  it('restarts a service that the plan had stopped', { skip: ONLY_IN_CI }, async () => {
    stage.writePlan(planWith('action: stop, plugin: greeter', PROVISION))
    await rolledBack('step_failed', 's2')
    assert.deepEqual(unitChanges(stage), ['stop greeter.service', 'restart greeter.service'])
    assert.deepEqual([stage.standIns.stateOf('greeter.service'), stage.standIns.running()], ['active', '1.0.0'])
  })

  it('stops a service that the plan had started', async () => {
    stage.standIns.setState('greeter.service', 'inactive')
    stage.writePlan(planWith('action: start, plugin: greeter', PROVISION))
    const [report] = await rolledBack('step_failed', 's2')
    assert.equal(stage.standIns.stateOf('greeter.service'), 'inactive')
    assert.equal(report.rollback?.healthy, null)
  })

  it('of a supervisor is reported with its output, and the old process is left alone', async () => {
    stage.standIns.before(
      'systemctl',
      'restart',
      'if [ ! -e failed ]; then touch failed; echo "Unit is masked" >&2; exit 5; fi',
    )
    stage.writePlan(planWith(RESTART))
    const [report] = await rolledBack('step_failed', 's1')
    assert.match(report.error?.message ?? '', /exit code 5.*Unit is masked/)
    assert.match(report.error?.message ?? '', /The old process of greeter\.service never stopped\.$/)
    assert.deepEqual([report.rollback?.stopped, report.rollback?.problems], [false, []])
  })

  it('says so when a service cannot be restored', { skip: ONLY_IN_CI }, async () => {
    stage.standIns.before('systemctl', 'restart', '[ -e once ] || begin; touch once; echo "bus is gone" >&2; exit 1')
    stage.writePlan(planWith(RESTART, healthcheck({ timeout: 60 })))
    const [report, { summary }] = await rolledBack('step_failed', 's1')
    assert.deepEqual(
      [report.rollback?.restored, report.rollback?.healthy, report.rollback?.problems.length],
      [true, false, 1],
    )
    assert.match(summary, /bus is gone/)
    assert.match(summary, /not healthy/)
    assert.match(listHost(stage.root)[RECORD] ?? '', /"service_pending": true/)
  })

  it('does not touch a service whose state is unknown', async () => {
    stage.standIns.before('systemctl', 'is-active', 'echo "no bus" >&2; exit 1')
    stage.writePlan(planWith(RESTART))
    const [report] = await rolledBack('step_failed', 's1')
    assert.deepEqual(unitChanges(stage), [])
    assert.match(report.error?.message ?? '', /no bus/)
  })

  it('that times out is ended together with every process that it started', { skip: ONLY_IN_CI }, async () => {
    stage.writeHostConfig(runningHostConfig(stage).replace('60s', '10s'))
    stage.standIns.add('make-db', 'echo started; sleep 3600 & echo $! > sleeper; wait')
    stage.writePlan(planWith(PROVISION))
    const [report] = await rolledBack('step_timed_out', 's1')
    assert.match(report.error?.message ?? '', /started/)
    await waitForEnd(readPid(join(stage.standIns.bin, '../sleeper')))
  })

  it('of a first install leaves nothing installed and nothing running', async () => {
    const { standIns } = stage
    await stage.publish('3.0.0', { 'plugin.yaml': 'name: hi\nversion: "3.0.0"\n' }, { slug: 'hi' })
    stage.writeHostConfig('version: 1\nsupervisor: systemd\nplugins: {hi: {healthcheck: {command: [/bin/false]}}}\n')
    stage.writePlan(
      planWith('action: start, plugin: hi', 'action: healthcheck, plugin: hi, timeout: 1').replaceAll('greeter', 'hi'),
    )
    const { outputs, log } = await stage.deployHere({ slug: 'hi' })
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['rolled_back', 'unhealthy'], log)
    assert.deepEqual([existsSync(join(stage.root, 'plugins/hi')), standIns.stateOf('hi.service')], [false, 'inactive'])
    assert.deepEqual(unitChanges(stage), ['start hi.service', 'stop hi.service'])
  })
})
