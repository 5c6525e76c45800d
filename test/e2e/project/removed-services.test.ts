import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it, type TestContext } from 'node:test'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { makeStandIns, type StandIns } from '../../install/services/stand-ins.ts'
import {
  assertNothingStrays,
  assertReported,
  commandsIn,
  listHost,
  readLocalReport,
  readReports,
} from '../harness/evidence.ts'
import { runningParts } from '../harness/project-evidence.ts'
import { filesWith, openShop, type Parts, type ProjectStage } from '../harness/project-stage.ts'
import { writeFiles } from '../harness/stage.ts'
import { tamper, whyNoStrace } from '../harness/strace.ts'

const ONLY_IN_CI = whyLeftToCi()

const WITHOUT_MAILER = ['cart', 'till']
const PROVISIONED = 'supervisor: systemd\nprovision: {cart: {command: [make-db], timeout: 60s}}\n'
const SYSTEMD = `${PROVISIONED}plugins: {mailer: {unit: mailer.service}}\n`
const DOCKER = 'supervisor: docker\nplugins: {mailer: {container: mailer}}\n'
const FAILING = { included: WITHOUT_MAILER, steps: ['action: provision, plugin: cart'] }

const RECORD = '.hub-deploy/installed.json'

let stage: ProjectStage
let standIns: StandIns
beforeEach(async () => {
  stage = await openShop({ '1.0.0': filesWith('1.0.0') })
  standIns = makeStandIns(join(stage.root, 'extensions/mailer/run.sh'))
  for (const unit of ['mailer.service', 'cart.service']) standIns.setState(unit, 'active')
  standIns.add('make-db', 'exit 4')
})
afterEach(async () => {
  standIns.close()
  await stage.close()
})

async function update(parts: Parts, hostConfig: string, run: Partial<ActionRun> = {}): Promise<ActionResult> {
  await stage.publish('2.0.0', filesWith('2.0.0', parts))
  return deployWith(hostConfig, run)
}

function deployWith(hostConfig: string, run: Partial<ActionRun> = {}): Promise<ActionResult> {
  writeFileSync(join(stage.workspace.path, 'host-config.yaml'), `version: 1\n${hostConfig}`)
  return stage.deploy({ 'host-config': 'host-config.yaml' }, { ...run, env: { PATH: standIns.path, ...run.env } })
}

function changed(): string[] {
  return standIns.changes().flatMap(([program, ...args]) => (program === 'make-db' ? [] : [args.join(' ')]))
}

/** Starts a process of the mailer, which systemctl's stand-in ends when it stops the unit. */
async function startMailer(t: TestContext): Promise<ChildProcess> {
  const mailer = spawn('sleep', ['600'], { cwd: join(stage.root, 'extensions/mailer'), stdio: 'ignore' })
  t.after(() => mailer.kill('SIGKILL'))
  await once(mailer, 'spawn')
  standIns.before('systemctl', 'stop', `kill -TERM ${mailer.pid}`)
  return mailer
}

function isThere(): boolean {
  return existsSync(join(stage.root, 'extensions/mailer'))
}

/**
 * Runs an update that must fail. Asserts that all parts are as they were, and that in `installed.json`, at most the
 * fact that a service is pending has changed.
 */
async function assertRolledBack(act: () => Promise<ActionResult>, outcome = 'rolled_back'): Promise<ActionResult> {
  const before = listHost(stage.root)
  const result = await act()
  assert.equal(result.outputs['outcome'], outcome, result.log)
  const { [RECORD]: record = '', ...others } = listHost(stage.root)
  const restored = record.replace(/ *"service_pending": true,\n *"pending_services": \[[^\]]*\],\n/, '')
  assert.deepEqual({ ...others, [RECORD]: restored }, before)
  assert.deepEqual(runningParts(stage), ['1.0.0', '1.0.0', '1.0.0'])
  assertReported(stage.root, result)
  assertNothingStrays(stage.root)
  return result
}

describe('the service of a part that a new version no longer includes', () => {
  it('is stopped before the files are removed, and no other service is', async () => {
    standIns.before('systemctl', 'stop', `test -e '${stage.root}/extensions/mailer/run.sh' || exit 9`)
    const { exitCode, log } = await update({ included: WITHOUT_MAILER }, SYSTEMD)
    assert.equal(exitCode, 0, log)
    assert.deepEqual([changed(), standIns.stateOf('mailer.service')], [['stop mailer.service'], 'inactive'])
    assert.ok(!isThere())
  })

  it('is left alone when it is not running', async () => {
    standIns.setState('mailer.service', 'inactive')
    assert.equal((await update({ included: WITHOUT_MAILER }, SYSTEMD)).exitCode, 0)
    assert.deepEqual([changed(), isThere()], [[], false])
  })

  it('is left alone, with a notice, when it also runs a part that stays', async () => {
    const shared = 'supervisor: systemd\nplugins: {mailer: {unit: cart.service}, cart: {unit: cart}}\n'
    const { exitCode, log } = await update({ included: WITHOUT_MAILER }, shared)
    assert.deepEqual([exitCode, changed(), isThere()], [0, [], false], log)
    assert.match(commandsIn(log, 'notice').join(), /cart\.service of extensions\/mailer was not stopped/)
  })

  for (const hostConfig of sampled(['', 'supervisor: none\n'], 1)) {
    it(`is not stopped, with a warning, under the host config "${hostConfig.trim()}"`, async () => {
      const { exitCode, log } = await update({ included: WITHOUT_MAILER }, hostConfig)
      assert.deepEqual([exitCode, changed(), isThere()], [0, [], false], log)
      assert.match(commandsIn(log, 'warning').join(), /extensions\/mailer was not stopped/)
    })
  }

  for (const [supervisor, hostConfig] of sampled(
    Object.entries({ systemd: PROVISIONED, docker: 'supervisor: docker\n' }),
    1,
  )) {
    it(`is not stopped under a ${supervisor} name that only its publisher has chosen`, async () => {
      const { outputs, log } = await update({ included: WITHOUT_MAILER }, hostConfig)
      assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'invalid_host_config'], log)
      assert.deepEqual([changed(), isThere()], [[], true])
    })
  }

  it('runs on when the kept paths of the part could not be restored', { skip: ONLY_IN_CI }, async t => {
    const [place, elsewhere] = [join(stage.root, 'extensions/mailer'), join(stage.root, 'elsewhere')]
    renameSync(place, elsewhere)
    symlinkSync('../elsewhere', place)
    writeFiles(elsewhere, { 'data/queue': '17 letters' })
    const mailer = await startMailer(t)
    const { outputs, log } = await update({ included: WITHOUT_MAILER }, SYSTEMD)
    assert.deepEqual(
      [outputs['outcome'], outputs['error-code'], outputs['failed-step']],
      ['failed', 'step_failed', 'extensions/mailer'],
      log,
    )
    assert.deepEqual([changed(), mailer.signalCode], [[], null])
    rmSync(place)
    renameSync(elsewhere, place)
    assert.equal((await deployWith(SYSTEMD)).exitCode, 0)
    assert.deepEqual([changed(), mailer.signalCode, isThere()], [['stop mailer.service'], 'SIGTERM', false])
  })

  it('does not have to exist', { skip: ONLY_IN_CI }, async () => {
    standIns.before('docker', 'inspect', 'echo "Error: No such object: mailer" >&2; exit 1')
    const { exitCode, log } = await update({ included: WITHOUT_MAILER }, DOCKER)
    assert.deepEqual([exitCode, changed(), isThere()], [0, [], false], log)
  })

  it('prevents the removal when its state is unknown', async () => {
    standIns.before('docker', 'inspect', 'echo "Cannot connect to the Docker daemon" >&2; exit 1')
    const before = listHost(stage.root)
    const { outputs, log } = await update({ included: WITHOUT_MAILER }, DOCKER)
    assert.deepEqual([outputs['outcome'], outputs['failed-step']], ['failed', 'extensions/mailer'], log)
    assert.deepEqual([listHost(stage.root), changed()], [before, []])
  })
})

describe('a removal that is rolled back', () => {
  it('starts the service again on the old files after a later step failed, and checks that it runs', {
    skip: ONLY_IN_CI,
  }, async () => {
    const result = await assertRolledBack(() => update(FAILING, SYSTEMD))
    assert.equal(result.outputs['failed-step'], 's1')
    assert.deepEqual(changed(), ['stop mailer.service', 'restart mailer.service'])
    assert.equal(standIns.running(), 'echo 1.0.0')
    const { rollback } = readLocalReport(result)
    assert.deepEqual([rollback?.verified, rollback?.healthy, rollback?.problems], [true, true, []])
  })

  it('does not appear as a removal in any report', { skip: ONLY_IN_CI }, async () => {
    const { log } = await assertRolledBack(() => update(FAILING, SYSTEMD))
    assert.doesNotMatch(log, /was removed, because/)
    standIns.add('make-db', '')
    assert.match((await deployWith(SYSTEMD)).log, /::notice.*extensions\/mailer \(1\.0\.0\) was removed, because/)
  })

  it("runs this host's own health check too", { skip: ONLY_IN_CI }, async () => {
    standIns.add('check', 'echo looked >> looks')
    const checked = `${PROVISIONED}plugins: {mailer: {unit: mailer.service, healthcheck: {command: [check]}}}\n`
    const { rollback } = readLocalReport(await assertRolledBack(() => update(FAILING, checked)))
    assert.equal(rollback?.healthy, true)
    assert.ok(existsSync(join(standIns.bin, '../looks')))
  })

  it('says so when the service does not start again', { skip: ONLY_IN_CI }, async () => {
    standIns.before('systemctl', 'restart', 'exit 5')
    const { rollback } = readLocalReport(await assertRolledBack(() => update(FAILING, SYSTEMD)))
    assert.equal(rollback?.healthy, false)
    assert.match(rollback?.problems.join() ?? '', /restart unit mailer\.service/)
  })

  it('does not start a service that was not running before', { skip: ONLY_IN_CI }, async () => {
    standIns.setState('mailer.service', 'inactive')
    await assertRolledBack(() => update(FAILING, SYSTEMD))
    assert.deepEqual(changed(), [])
  })

  it('leaves everything in place when the service cannot be stopped', { skip: ONLY_IN_CI }, async () => {
    standIns.before('systemctl', 'stop', 'exit 5')
    const act = () => update({ included: WITHOUT_MAILER }, SYSTEMD)
    const { outputs, log } = await assertRolledBack(act, 'failed')
    assert.deepEqual([outputs['failed-step'], outputs['error-code']], ['extensions/mailer', 'step_failed'], log)
    assert.match(log, /The old process of mailer\.service never stopped/)
    assert.equal(standIns.stateOf('mailer.service'), 'active')
  })

  it('leaves everything in place when the directory cannot be moved', { skip: whyNoStrace() }, async () => {
    const run = tamper(join(stage.root, 'extensions/mailer'), 'rename', 'error=EPERM', '5')
    const { outputs } = await assertRolledBack(() => update({ included: WITHOUT_MAILER }, SYSTEMD, run))
    assert.deepEqual([outputs['failed-step'], outputs['error-code']], ['extensions/mailer', 'host_not_writable'])
    assert.deepEqual(changed(), ['stop mailer.service', 'restart mailer.service'])
  })

  it('is finished by the post step when the run was killed as it stopped the service', {
    skip: ONLY_IN_CI,
  }, async () => {
    standIns.before('systemctl', 'stop', 'kill -KILL $PPID')
    const before = listHost(stage.root)
    const killed = await update({ included: WITHOUT_MAILER }, SYSTEMD)
    assert.equal(killed.signal, 'SIGKILL', killed.log)
    const { exitCode, log } = await deployWith(SYSTEMD, { phase: 'post', state: killed.state })
    assert.equal(exitCode, 0, log)
    assert.deepEqual(listHost(stage.root), before)
    assert.deepEqual([changed().at(-1), standIns.stateOf('mailer.service')], ['restart mailer.service', 'active'])
    const report = readReports(stage.root).get(killed.outputs['deployment-id'] ?? '')
    assert.deepEqual([report?.outcome, report?.rollback?.healthy], ['rolled_back', true])
  })
})
