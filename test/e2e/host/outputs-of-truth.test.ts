import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { acquireLock } from '../../../src/install/host/lock.ts'
import { openJournal } from '../../../src/install/journal/journal.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { publishSteps } from '../harness/cancel-moments.ts'
import { type CancelScene, HANG, isHanging, killedOnce, openCancelScene } from '../harness/cancel-scene.ts'
import { commandsIn, readReports } from '../harness/evidence.ts'
import { run as runProgram, whyNoImmutables } from '../harness/mounts.ts'

const ONLY_IN_CI = whyLeftToCi()

describe('the truth of the outputs', { concurrency: 2 }, () => {
  for (const contract of sampled(['marketplace', 'project'] as const, 1)) {
    describe(`the outputs of a run (${contract})`, { concurrency: 1 }, () => {
      let scene: CancelScene
      const open = async (t: TestContext): Promise<void> => {
        scene = await openCancelScene(t, contract)
        await publishSteps(scene, 'restart', 'provision', 'healthcheck')
      }
      afterEach(async () => await scene.close())
      const seen = ({ outputs }: ActionResult): (string | undefined)[] =>
        ['outcome', 'state', 'version', 'previous-version', 'running-version'].map(name => outputs[name])
      const reportOf = ({ outputs }: ActionResult) => readReports(scene.root).get(outputs['deployment-id'] ?? '')

      it('name the running version after a success, and when the same version is deployed again', {
        skip: ONLY_IN_CI,
      }, async t => {
        await open(t)
        assert.deepEqual(seen(await scene.run()), ['success', 'succeeded', '2.0.0', '1.0.0', '2.0.0'])
        const again = await scene.run()
        assert.deepEqual(seen(again), ['success', 'succeeded', '2.0.0', '2.0.0', '2.0.0'])
        assert.deepEqual([again.outputs['changed'], reportOf(again)?.running_version], ['false', '2.0.0'])
      })

      it('name the running version after a failed step, whose id begins the message', { skip: ONLY_IN_CI }, async t => {
        await open(t)
        scene.standIns.add('make-db', 'exit 4')
        const result = await scene.run()
        assert.deepEqual(seen(result), ['rolled_back', 'rolled_back', '2.0.0', '1.0.0', '1.0.0'])
        const report = reportOf(result)
        assert.deepEqual([report?.running_version, report?.error?.step], ['1.0.0', 's2'])
        assert.match(report?.error?.message ?? '', /^s2: /)
        assert.match(commandsIn(result.log, 'error').join(), /^::error title=step_failed::s2: /)
        if (contract === 'marketplace') assert.match(scene.errorMessages().at(-1) ?? '', /^s2: /)
      })

      it('say that no version runs after a first install that failed', { skip: ONLY_IN_CI }, async t => {
        await open(t)
        rmSync(scene.root, { recursive: true })
        mkdirSync(scene.root, { mode: 0o755 })
        scene.standIns.add('make-db', 'exit 4')
        const result = await scene.run()
        assert.deepEqual(seen(result), ['rolled_back', 'rolled_back', '2.0.0', '', ''])
        assert.equal(reportOf(result)?.running_version, null)
      })

      it('name the running version when the run was refused before it had the lock', async t => {
        await open(t)
        const result = await scene.run({}, { version: 'not a version' })
        assert.deepEqual(seen(result), ['failed', 'pending', '', '', '1.0.0'])
        assert.equal(reportOf(result)?.running_version, '1.0.0')
      })

      it('name the running version when another run had the lock', async t => {
        await open(t)
        const path = join(scene.root, '.hub-deploy/lock')
        const lock = await acquireLock({ path, timeoutMs: 0, runUrl: null, log: () => {} })
        t.after(() => lock.release())
        const result = await scene.run({}, { 'lock-timeout-seconds': '1' })
        assert.deepEqual([result.outputs['error-code'], result.outputs['running-version']], ['locked', '1.0.0'])
      })

      it('name no running version when its directories are gone', async t => {
        await open(t)
        rmSync(join(scene.root, 'plugins'), { recursive: true })
        rmSync(join(scene.root, 'extensions'), { recursive: true, force: true })
        const result = await scene.run({}, { version: 'not a version' })
        assert.deepEqual(seen(result), ['failed', 'pending', '', '', ''])
      })

      it('name no running version when the run was killed after the switch, until its recovery', async t => {
        await open(t)
        scene.standIns.add('make-db', 'kill -KILL $PPID')
        const killed = await scene.run()
        assert.deepEqual([killed.outputs['outcome'], killed.outputs['running-version']], ['interrupted', ''])
        const path = join(scene.root, '.hub-deploy/lock')
        const lock = await acquireLock({ path, timeoutMs: 0, runUrl: null, log: () => {} })
        t.after(() => lock.release())
        const refused = await scene.run({}, { 'lock-timeout-seconds': '1' })
        assert.deepEqual([refused.outputs['error-code'], refused.outputs['running-version']], ['locked', ''])
      })

      it('name no running version when the host is inconsistent', async t => {
        await open(t)
        const snapshots = `${scene.root}/.hub-deploy/snapshots/plugins`
        scene.standIns.add('make-db', `mv '${snapshots}' '${scene.root}/away'; exit 4`)
        const result = await scene.run()
        assert.deepEqual(seen(result), ['inconsistent', 'failed', '2.0.0', '1.0.0', ''])
        assert.equal(reportOf(result)?.running_version, null)
      })

      it('and one error say that a host is inconsistent, even after five runs and their post steps have tried to recover it', {
        skip: whyNoImmutables(),
      }, async t => {
        await open(t)
        const frozen = `${scene.root}/.hub-deploy/snapshots/plugins/${scene.id}/1-1.0.0`
        scene.standIns.add('make-db', `chattr +i '${frozen}'; exit 4`)
        await scene.run()
        try {
          for (let run = 1; run <= 6; run++) {
            const { outputs, log, state } = await scene.run()
            assert.deepEqual([outputs['outcome'], outputs['running-version']], ['inconsistent', ''], log)
            const errors = commandsIn(log, 'error')
            assert.equal(errors.length, 1, log)
            assert.match(
              errors.join(),
              run <= 5 ? /could not be rolled back, so nothing new is deployed/ : /in 5 attempts, so/,
            )
            assert.equal(log.split('could not be rolled back').length, 2, log)
            assert.deepEqual(commandsIn(log, 'warning'), [])
            const post = await scene.post(state)
            assert.deepEqual([post.exitCode, commandsIn(post.log, 'error')], [0, []])
          }
        } finally {
          runProgram('chattr', '-i', frozen)
        }
      })

      it('show how far a run got before it was killed in its health check, and post names the running version', {
        skip: ONLY_IN_CI,
      }, async t => {
        await open(t)
        scene.standIns.add('check', `if grep -q 2.0.0 running; then ${HANG}; fi; echo fine`)
        const result = await killedOnce(scene, () => isHanging(scene))
        assert.deepEqual(seen(result), ['interrupted', 'healthchecking', '2.0.0', '1.0.0', ''])
        const { exitCode, log } = await scene.post(result.state)
        assert.equal(exitCode, 0, log)
        const report = reportOf(result)
        assert.deepEqual(
          [report?.outcome, report?.running_version, report?.rollback?.healthy],
          ['rolled_back', '1.0.0', true],
        )
        assert.equal(commandsIn(log, 'notice').length, 1, log)
      })

      it('show in post the end of a run that another run has recovered', { skip: ONLY_IN_CI }, async t => {
        await open(t)
        scene.standIns.add('check', `if grep -q 2.0.0 running; then ${HANG}; fi; echo fine`)
        const result = await killedOnce(scene, () => isHanging(scene))
        scene.standIns.add('check', 'echo fine')
        const other = await scene.run()
        assert.deepEqual([other.outputs['outcome'], other.outputs['changed']], ['success', 'true'], other.log)
        const { exitCode, log, summary } = await scene.post(result.state)
        assert.equal(exitCode, 0, log)
        assert.match(commandsIn(log, 'notice').join('\n'), /left to recover: it was rolled back to 1\.0\.0\.$/)
        assert.match(summary, /^### ↩️ .* 2\.0\.0 was rolled back/)
      })

      it('show the restored version as unhealthy in an error of post, which does not fail', {
        skip: ONLY_IN_CI,
      }, async t => {
        await open(t)
        scene.standIns.add('check', `if grep -q 2.0.0 running; then ${HANG}; fi; echo 'no database'; exit 3`)
        const result = await killedOnce(scene, () => isHanging(scene))
        const { exitCode, log, summary } = await scene.post(result.state)
        assert.equal(exitCode, 0, log)
        assert.match(
          commandsIn(log, 'error').join('\n'),
          /^::error::.*1\.0\.0, which is installed again.*no database[^\n]*$/,
        )
        assert.deepEqual([commandsIn(log, 'notice'), commandsIn(log, 'warning')], [[], []])
        assert.match(summary, /^### .*\n\n> \[!CAUTION\]\n.*no database/)
      })

      it('show that a run was committed if it was killed before the hub had its report', {
        skip: ONLY_IN_CI,
      }, async t => {
        await open(t)
        scene.unanswered.add('report')
        const result = await killedOnce(scene, () => scene.left.includes('report'))
        assert.deepEqual(seen(result), ['success', 'succeeded', '2.0.0', '1.0.0', '2.0.0'])
        assert.deepEqual([result.outputs['changed'], result.outputs['reported']], ['true', 'false'])
        scene.unanswered.clear()
        assert.equal((await scene.post(result.state)).exitCode, 0)
        assert.deepEqual([reportOf(result)?.running_version, scene.reported().at(-1)], ['2.0.0', '2.0.0 success'])
      })

      it('come with each warning once, although the run checks twice', { skip: whyNoImmutables() }, async t => {
        await open(t)
        const stuck = join(scene.root, '.hub-deploy/trash/discarded-long-ago')
        mkdirSync(join(stuck, 'inner'), { recursive: true })
        runProgram('chattr', '+i', stuck)
        const { log, outputs } = await scene.run().finally(() => runProgram('chattr', '-i', stuck))
        assert.equal(outputs['outcome'], 'success', log)
        assert.deepEqual(
          commandsIn(log, 'warning').map(line => line.includes('discarded-long-ago')),
          [true],
          log,
        )
      })
    })
  }
})

describe('a dry run', () => {
  const dryRun = async (scene: CancelScene): Promise<ActionResult> => await scene.run({}, { 'dry-run': 'true' })
  const open = async (t: TestContext, ...steps: Parameters<typeof publishSteps>[1][]): Promise<CancelScene> => {
    const scene = await openCancelScene(t, 'marketplace')
    t.after(() => scene.close())
    await publishSteps(scene, ...steps)
    return scene
  }
  /** Opens a scene with a run that was killed after the switch. Also returns the path of that run's journal. */
  const openKilled = async (t: TestContext): Promise<[scene: CancelScene, journal: string]> => {
    const scene = await open(t, 'provision')
    scene.standIns.add('make-db', 'kill -KILL $PPID')
    assert.equal((await scene.run()).outputs['outcome'], 'interrupted')
    return [scene, join(scene.root, '.hub-deploy/journal.jsonl')]
  }

  it('names the running version, which stays', async t => {
    const scene = await open(t, 'restart')
    const { outputs } = await dryRun(scene)
    assert.deepEqual(
      [outputs['outcome'], outputs['version'], outputs['running-version']],
      ['success', '2.0.0', '1.0.0'],
    )
    assert.equal(existsSync(join(scene.root, '.hub-deploy/journal.jsonl')), false)
  })

  it('says that a real run would recover the host first, or wait for another run', async t => {
    const [scene] = await openKilled(t)
    const { outputs, log } = await dryRun(scene)
    assert.deepEqual([outputs['outcome'], outputs['running-version']], ['success', ''])
    assert.match(commandsIn(log, 'notice').join(), /is waiting for its recovery\. A real run would recover it first/)
    const lock = await acquireLock({
      path: join(scene.root, '.hub-deploy/lock'),
      timeoutMs: 0,
      runUrl: null,
      log: () => {},
    })
    t.after(() => lock.release())
    const busy = commandsIn((await dryRun(scene)).log, 'notice').join()
    assert.match(
      busy,
      /Another deployment is in progress here \(process \d+ .*\)\. A real run would wait for that deployment/,
    )
    assert.doesNotMatch(busy, /recovery/)
  })

  it('is refused like a real run if the recovery was given up', async t => {
    const [scene, path] = await openKilled(t)
    const journal = openJournal(path)
    for (let run = 1; run <= 5; run++)
      await journal.append({ record: 'recovery', at: new Date().toISOString(), by: randomUUID() })
    journal.close()
    const before = readFileSync(path)
    for (const result of [await dryRun(scene), await scene.run()]) {
      const { exitCode, outputs, log } = result
      assert.deepEqual([exitCode, outputs['outcome'], outputs['error-code']], [1, 'inconsistent', 'inconsistent'], log)
      assert.equal(outputs['running-version'], '')
      assert.match(commandsIn(log, 'error').join(), /could not be rolled back in 5 attempts/)
    }
    assert.deepEqual(readFileSync(path), before)
  })

  it('calls a host inconsistent if its record is damaged', async t => {
    const scene = await open(t, 'restart')
    writeFileSync(join(scene.root, '.hub-deploy/installed.json'), '{')
    for (const { outputs, log } of [await dryRun(scene), await scene.run()])
      assert.deepEqual([outputs['outcome'], outputs['error-code']], ['inconsistent', 'inconsistent'], log)
  })
})
