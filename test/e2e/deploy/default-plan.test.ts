import assert from 'node:assert/strict'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { commandsIn, listHost, listOwn, readLocalReport } from '../harness/evidence.ts'
import { onceInLog } from '../harness/processes.ts'
import { assertNoSecret, assertRefuses } from '../harness/refusal.ts'
import { type HostStage, openHostStage, versionFiles } from '../harness/stage.ts'

const NO_PLAN = { 'install-plan': '' }
const SYSTEMD = 'version: 1\nsupervisor: systemd\n'

let stage: HostStage
beforeEach(async () => {
  stage = await openHostStage()
  await stage.publish('1.0.0', versionFiles('1.0.0'))
})
afterEach(() => stage.close())

async function deployed(inputs: Record<string, string> = {}): Promise<ActionResult> {
  const result = await stage.deployHere({ ...NO_PLAN, ...inputs })
  assert.deepEqual([result.exitCode, result.outputs['outcome']], [0, 'success'], result.log)
  assert.equal(commandsIn(result.log, 'error').length, 0)
  assertNoSecret(stage, result)
  return result
}

/** The plan as an operator would copy it from the log, where its lines are not indented. */
function planIn({ log }: ActionResult): string {
  const [plan] = /^format_version: .*\n(?:.*\n)*?steps:\n(?:- .*\n)+/m.exec(log) ?? []
  assert.ok(plan !== undefined, log)
  return plan
}

function statusesOf(result: ActionResult): string[] {
  return readLocalReport(result).steps.map(({ id, action, status }) => `${id} ${action} ${status}`)
}

const ONLY_IN_CI = whyLeftToCi()

describe('a deployment without a plan', () => {
  it('prints its plan, which also works from a file, and restarts and checks the service as the host config says', {
    skip: ONLY_IN_CI,
  }, async () => {
    stage.writeHostConfig(SYSTEMD)
    const first = await deployed()
    assert.deepEqual(statusesOf(first), [
      'prepare prepare done',
      'files install_plugin done',
      'up restart done',
      'healthy healthcheck done',
    ])
    assert.deepEqual(stage.standIns.changes(), [['systemctl', 'restart', 'greeter.service']])
    assert.equal(stage.standIns.running(), '1.0.0')
    assert.match(first.log, /install-plan names no file, .* because host-config\.yaml has supervisor: systemd\./)

    stage.writePlan(planIn(first))
    const asFile = await deployed({ 'install-plan': 'install.yaml' })
    assert.doesNotMatch(asFile.log, /default plan/)
    assert.equal(asFile.outputs['changed'], 'false')
    assert.deepEqual(statusesOf(asFile), [
      'prepare prepare done',
      'files install_plugin unchanged',
      'up restart skipped',
      'healthy healthcheck done',
    ])
    assert.equal(stage.standIns.changes().length, 1)
  })

  it('shows an update in a dry run, retains the version that it replaces and, without a supervisor, only checks health', {
    skip: ONLY_IN_CI,
  }, async () => {
    await deployed({ 'host-config': '' })
    stage.writeHostConfig('version: 1\nplugins: {greeter: {healthcheck: {command: ["true"]}}}\n')
    await stage.publish('2.0.0', versionFiles('2.0.0'))
    const host = listHost(stage.root)
    const dry = await deployed({ 'dry-run': 'true' })
    assert.deepEqual(listHost(stage.root), host)
    const update = await deployed()
    assert.equal(planIn(update), planIn(dry))
    assert.deepEqual(statusesOf(update).at(-1), 'healthy healthcheck done')
    assert.equal(listOwn(stage, 'snapshots/plugins/greeter').length, 1)
    const pin = { version: '2.0.0', 'artifact-sha256': update.outputs['artifact-sha256'] ?? '' }
    const check = await deployed({ ...pin, 'check-only': 'true' })
    assert.deepEqual([planIn(check), check.outputs['changed']], [planIn(update), 'false'])
  })

  it('rolls back when the new version cannot be restarted', { skip: ONLY_IN_CI }, async () => {
    await deployed({ 'host-config': '' })
    await stage.publish('2.0.0', versionFiles('2.0.0'))
    stage.writeHostConfig(SYSTEMD)
    stage.standIns.before('systemctl', 'restart', 'exit 1')
    const before = listHost(join(stage.root, 'plugins'))
    const { exitCode, outputs, log } = await stage.deployHere(NO_PLAN)
    assert.deepEqual([exitCode, outputs['outcome'], outputs['failed-step']], [1, 'rolled_back', 'up'], log)
    assert.deepEqual(listHost(join(stage.root, 'plugins')), before)
  })

  it('installs a service and, without a host config, does nothing else', { skip: ONLY_IN_CI }, async () => {
    await stage.publish('1.0.0', { 'run.sh': '' }, { kind: 'service', slug: 'clock' })
    const result = await deployed({ kind: 'service', slug: 'clock', 'host-config': '' })
    assert.deepEqual(statusesOf(result), ['prepare prepare done', 'files install_extension done'])
    assert.match(result.log, /does nothing else, because host-config names no file/)
  })

  it('is recovered without a plan when it was killed after the switch', async () => {
    stage.writeHostConfig('version: 1\nplugins: {greeter: {healthcheck: {command: ["false"]}}}\n')
    const kill = onceInLog('::group::healthchecking', pid => process.kill(pid, 'SIGKILL'))
    const killed = await stage.deployHere(NO_PLAN, kill)
    assert.deepEqual([killed.signal, killed.outputs['outcome']], ['SIGKILL', 'interrupted'])
    assert.ok(existsSync(join(stage.root, 'plugins/greeter')))
    const post = await stage.deployHere(NO_PLAN, { phase: 'post', state: killed.state })
    assert.equal(post.exitCode, 0, post.log)
    assert.ok(!existsSync(join(stage.root, 'plugins/greeter')))
  })
})

describe('a deployment without a plan is refused', () => {
  it('with settings, which it would ignore', async () => {
    const settings = { settings: 'GREETER_TOKEN=secret of the greeter' }
    const { log } = await assertRefuses(
      stage,
      { code: 'invalid_input', during: 'pending' },
      { ...NO_PLAN, ...settings },
    )
    assert.match(log, /settings needs a plan with a write_env step/)
  })

  it('with a slug that cannot be an id, or a check that could never pass', async () => {
    const refusal = { code: 'invalid_plan', during: 'pending' } as const
    const slug = await assertRefuses(stage, refusal, { ...NO_PLAN, slug: 'greeter.env' })
    assert.match(slug.log, /the default plan does not fit: .*does not end in \.env/)
    stage.writeHostConfig('version: 1\nplugins: {greeter: {healthcheck: {tcp: "h:1", stable_for: 10m}}}\n')
    const slow = await assertRefuses(stage, refusal, { ...NO_PLAN, 'host-config': 'host-config.yaml' })
    assert.match(slow.log, /::error title=invalid_plan::.*can never pass/)
  })

  it('if an earlier plan has installed the slug under another id', async () => {
    stage.writePlan(planFor('hello'))
    assert.equal((await stage.deploy()).exitCode, 0)
    const { log } = await assertRefuses(stage, { code: 'missing_input', during: 'pending' }, NO_PLAN)
    assert.match(
      log,
      /would install greeter as greeter, although an earlier plan has installed greeter here as plugins\/hello: name a plan for the id hello /,
    )
    const { 'error-code': code } = (await stage.deploy({ ...NO_PLAN, 'dry-run': 'true' })).outputs
    assert.equal(code, 'missing_input')
  })
})

describe('an install-plan that is named', () => {
  it('may install the slug under another id, with a warning the first time', async () => {
    assert.equal((await stage.deploy(NO_PLAN)).exitCode, 0)
    stage.writePlan(planFor('hello'))
    const warnings = async () =>
      commandsIn((await stage.deploy()).log, 'warning').filter(text => text.includes('installed here as'))
    const [warning, ...others] = await warnings()
    assert.match(warning ?? '', /installs greeter as hello, although it is installed here as plugins\/greeter, /)
    assert.deepEqual([others, await warnings()], [[], []])
  })

  it('must be a file that exists, and is never replaced by the default plan', async () => {
    mkdirSync(join(stage.workspace.path, 'folder'))
    writeFileSync(join(stage.workspace.path, 'empty.yaml'), '')
    for (const [path, code] of Object.entries({
      'no-such.yaml': 'invalid_input',
      folder: 'invalid_input',
      'empty.yaml': 'invalid_plan',
    } as const)) {
      const { log } = await assertRefuses(stage, { code, during: 'pending' }, { 'install-plan': path })
      assert.doesNotMatch(log, /default plan/)
    }
  })
})

function planFor(id: string): string {
  return `format_version: "1"\nproject_id: greeter\nversion: "1"\nsteps:\n  - {id: files, action: install_plugin, plugin: ${id}}\n`
}
