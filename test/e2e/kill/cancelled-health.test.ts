import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { acquireLock } from '../../../src/install/host/lock.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { publishSteps } from '../harness/cancel-moments.ts'
import { type CancelScene, type Contract, cancelledOnce, HANG, openCancelScene } from '../harness/cancel-scene.ts'
import { assertNothingStrays, commandsIn, readReports } from '../harness/evidence.ts'

const ONLY_IN_CI = whyLeftToCi()

const IS_NEW = 'grep -q 2.0.0 running 2> /dev/null'

describe('after a cancel', { concurrency: 2 }, () => {
  for (const contract of sampled(['marketplace', 'project'] as const satisfies readonly Contract[], 1)) {
    describe(`the post step of a run that was cancelled in its health check (${contract})`, { concurrency: 1 }, () => {
      let scene: CancelScene
      let main: ActionResult
      /** `old` is the script that the check runs for the old version. */
      const arrange = async (t: TestContext, old: string): Promise<void> => {
        scene = await openCancelScene(t, contract)
        await publishSteps(scene, 'restart', 'healthcheck')
        scene.standIns.add('check', `if ${IS_NEW}; then ${HANG}; fi; ${old}`)
        main = await cancelledOnce(scene)
        assert.deepEqual([main.outputs['outcome'], main.outputs['error-code']], ['rolled_back', 'cancelled'], main.log)
        assert.equal(reportOf(main).rollback?.healthy, null)
      }
      const reportOf = (result: ActionResult) => {
        const report = readReports(scene.root).get(result.outputs['deployment-id'] ?? '')
        assert.ok(report)
        return report
      }
      const calls = (): number => scene.standIns.calls().filter(([program]) => program === 'check').length
      const auditLines = (): number =>
        readFileSync(join(scene.root, '.hub-deploy/audit.jsonl'), 'utf8').split('\n').length
      afterEach(() => scene.close())

      it('says nothing when the old version is healthy, and completes the local report', {
        skip: ONLY_IN_CI,
      }, async t => {
        await arrange(t, 'echo fine')
        const [heard, audited] = [scene.reported(), auditLines()]
        const { exitCode, log, summary } = await scene.post(main.state)
        assert.deepEqual([exitCode, log.replaceAll(/^::add-mask::.*\n/gm, ''), summary], [0, '', ''])
        assert.deepEqual([reportOf(main).rollback?.healthy, reportOf(main).rollback?.problems], [true, []])
        assert.deepEqual([scene.reported(), auditLines()], [heard, audited])
        assertNothingStrays(scene.root)
      })

      it('annotates an error when the old version is unhealthy, does not fail, and reports nothing again', {
        skip: ONLY_IN_CI,
      }, async t => {
        await arrange(t, 'echo "no database" >&2; exit 3')
        const [heard, audited] = [scene.reported(), auditLines()]
        const { exitCode, log, summary } = await scene.post(main.state)
        assert.equal(exitCode, 0, log)
        assert.match(
          commandsIn(log, 'error').join('\n'),
          /^::error title=unhealthy::.*1\.0\.0, which is installed again.*no database[^\n]*$/,
        )
        assert.match(summary, /^### .*\n\n> \[!CAUTION\]\n.*no database/)
        assert.ok(summary.includes(`local report <code>${main.outputs['report-path']}</code>`), summary)
        const { rollback, running_version } = reportOf(main)
        assert.deepEqual([rollback?.healthy, rollback?.restored, running_version], [false, true, '1.0.0'])
        assert.match(rollback?.problems.join() ?? '', /no database/)
        assert.deepEqual([scene.reported(), auditLines()], [heard, audited])
        assertNothingStrays(scene.root)
      })

      it('checks nothing when another run has deployed in the meantime', { skip: ONLY_IN_CI }, async t => {
        await arrange(t, 'exit 3')
        scene.standIns.add('check', 'echo fine')
        assert.equal((await scene.run()).outputs['outcome'], 'success')
        const before = calls()
        const { exitCode, log } = await scene.post(main.state)
        assert.deepEqual([exitCode, calls(), commandsIn(log, 'error')], [0, before, []])
        assert.equal(reportOf(main).rollback?.healthy, null)
      })

      it('checks nothing while another run has the lock', { skip: ONLY_IN_CI }, async t => {
        await arrange(t, 'exit 3')
        const before = calls()
        const path = join(scene.root, '.hub-deploy/lock')
        const lock = await acquireLock({ path, timeoutMs: 0, runUrl: null, log: () => {} })
        t.after(() => lock.release())
        const { exitCode, log } = await scene.post(main.state)
        assert.deepEqual([exitCode, calls(), commandsIn(log, 'error')], [0, before, []])
      })

      it('runs the check that the host config has by then, because no file of the main step says what to execute', async t => {
        await arrange(t, 'echo fine')
        const other = scene.standIns.add('other', 'echo fine')
        scene.configure(`healthcheck: {command: [${other}]}`)
        await scene.post(main.state)
        assert.equal(
          scene.standIns.calls().some(([program]) => program === 'other'),
          true,
        )
        assert.equal(reportOf(main).rollback?.healthy, true)
      })
    })
  }
})
