import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import { waitUntil } from '../../clocks.ts'
import { sampled } from '../../extent.ts'
import { acceptedReports, listHost, listOwn } from '../harness/evidence.ts'
import { readPid, waitForEnd } from '../harness/processes.ts'
import {
  type HostStage,
  healthcheck,
  IS_NEW,
  openRunningHost,
  PROVISION,
  planWith,
  RESTART,
  unitChanges,
} from '../harness/stage.ts'

let stage: HostStage
beforeEach(async () => {
  stage = await openRunningHost()
})
afterEach(() => stage.close())

const RECOVERED = /The interrupted deployment of greeter 2\.0\.0 was recovered: it was rolled back to 1\.0\.0\./

describe('a run that is killed', () => {
  /** Shell: the first call of a program with this script kills the run that calls the program. */
  const KILL_ONCE = 'if [ ! -e killed ]; then touch killed; kill -9 $PPID; exit 1; fi'
  const deaths: Record<string, () => void> = {
    'by a provision command': () => void stage.standIns.add('make-db', KILL_ONCE),
    'while a service is restarted': () => stage.standIns.before('systemctl', 'restart', KILL_ONCE),
    'by a health check': () => void stage.standIns.add('check', `${KILL_ONCE}; if ${IS_NEW}; then exit 1; fi`),
  }
  const recoveries: Record<string, (state: Record<string, string>) => Promise<unknown>> = {
    'its post step': async state => {
      assert.match((await stage.deployHere({}, { phase: 'post', state })).log, RECOVERED)
    },
    'the next run of any version, as its summary says': async () => {
      const { log, summary } = await stage.deployHere({ version: '7.0.0' })
      assert.match(log, RECOVERED)
      assert.match(summary, RECOVERED)
    },
  }
  for (const [death, arrange] of sampled(Object.entries(deaths), 1)) {
    for (const [who, recover] of Object.entries(recoveries)) {
      it(`${death} is recovered, both files and services, by ${who}`, async () => {
        stage.standIns.add('make-db', '')
        arrange()
        stage.writePlan(planWith(RESTART, PROVISION, healthcheck({ timeout: 60 })))
        const before = listHost(stage.root)
        const dead = await stage.deployHere()
        assert.deepEqual([dead.signal, dead.outputs['outcome']], ['SIGKILL', 'interrupted'], dead.log)
        assert.notDeepEqual(listHost(stage.root), before)
        await recover(dead.state)
        assert.deepEqual(listHost(stage.root), before)
        assert.equal(stage.standIns.running(), '1.0.0')
        assert.deepEqual(unitChanges(stage), ['restart greeter.service', 'restart greeter.service'])
        const reported = acceptedReports(stage).filter(row => row.version === '2.0.0')
        assert.deepEqual(
          reported.map(row => row.status),
          ['rolled_back'],
        )
        const { rollback, error } = interruptedReport()
        assert.deepEqual([error?.code, rollback?.healthy, rollback?.problems], ['interrupted', true, []])
      })
    }
  }
})

describe('a cancelled run', () => {
  it('ends a slow provision command with its children and restores everything', async () => {
    stage.standIns.add('make-db', 'sleep 3600 & echo $! > sleeper; wait')
    stage.writePlan(planWith(RESTART, PROVISION))
    const before = listHost(stage.root)
    const sleeper = join(stage.standIns.bin, '../sleeper')
    const started = Promise.withResolvers<number>()
    const run = stage.deployHere({}, { onStart: started.resolve })
    await waitUntil('the command runs', () => existsSync(sleeper) && readFileSync(sleeper, 'utf8').endsWith('\n'))
    process.kill(await started.promise, 'SIGINT')
    const { outputs, log } = await run
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['rolled_back', 'cancelled'], log)
    assert.deepEqual(listHost(stage.root), before)
    assert.deepEqual(unitChanges(stage), ['restart greeter.service', 'restart greeter.service'])
    await waitForEnd(readPid(sleeper))
  })
})

function interruptedReport(): LocalReport {
  const reports = listOwn(stage, 'reports').map(
    (name): LocalReport => JSON.parse(readFileSync(join(stage.root, '.hub-deploy/reports', name), 'utf8')),
  )
  const found = reports.find(report => report.error?.code === 'interrupted')
  assert.ok(found)
  return found
}
