import assert from 'node:assert/strict'
import { existsSync, linkSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError, type ErrorCode } from '../../../src/core/errors.ts'
import { type HostCommand, parseHostConfig } from '../../../src/core/plan/host-config.ts'
import type { PlanStep } from '../../../src/core/plan/step.ts'
import { layoutOf } from '../../../src/install/host/layout.ts'
import type { DeploymentTools } from '../../../src/install/run/deployment.ts'
import {
  type HostCommandRequest,
  keepPart,
  performStep,
  runHostCommand,
} from '../../../src/install/steps/perform-step.ts'
import { waitUntil } from '../../clocks.ts'
import { temporaryDirectory } from '../../folders.ts'
import { contextOf, deploymentOf, partOf } from '../prepared-deployment.ts'
import { collectLog, prepareTemporaryHost } from '../prepared-host.ts'
import { useStandIns } from '../services/stand-ins.ts'
import { GREETER, installRecorded } from '../trees/recorded-tree.ts'

const AT = { dependsOn: [], snapshot: false, file: 'install.yaml', line: 1, column: 1 }

describe('a step about a part that the plan does not install', () => {
  const steps: readonly PlanStep[] = [
    { ...AT, id: 'files', action: 'install_plugin', plugin: 'web' },
    { ...AT, id: 'env', action: 'write_env', plugin: 'web', from: 'plugins/web/.env.template' },
  ]
  for (const step of steps) {
    it(`fails, and does not blame the host config (${step.action})`, async t => {
      const context = await contextOf(t, deploymentOf(await prepareTemporaryHost(t)), { steps: [step] })
      await assert.rejects(
        performStep(context, step),
        new DeploymentError('step_failed', 'This deployment contains no plugins/web: correct the plan.'),
      )
    })
  }
})

describe('a step that needs a host config', () => {
  const steps: readonly PlanStep[] = [
    { ...AT, id: 'up', action: 'restart', plugin: 'web' },
    { ...AT, id: 'ok', action: 'healthcheck', plugin: 'web', timeoutSeconds: 1, retries: 0 },
    { ...AT, id: 'db', action: 'provision', plugin: 'web' },
  ]
  for (const step of steps) {
    it(`fails without one, and names the input to set (${step.action})`, async t => {
      const context = await contextOf(t, deploymentOf(await prepareTemporaryHost(t)), { steps: [step] })
      await assert.rejects(
        performStep(context, step),
        new DeploymentError('step_failed', 'The plan needs a host config, but there is none: set host-config.'),
      )
    })
  }
})

const START: PlanStep = {
  id: 'up',
  dependsOn: [],
  snapshot: false,
  file: 'install.yaml',
  line: 1,
  column: 1,
  action: 'start',
  plugin: 'web',
}
const HOST_CONFIG = 'version: 1\nsupervisor: docker\nplugins: {web: {container: web}}\n'

async function performIdle(t: TestContext) {
  const layout = await prepareTemporaryHost(t)
  const log = collectLog()
  const hostConfig = parseHostConfig(HOST_CONFIG, 'host.yaml')
  const context = await contextOf(t, deploymentOf(layout, { tools: { log } }), { steps: [START], hostConfig })
  return { log, end: performStep({ ...context, idle: new Set([START.id]) }, START) }
}

describe('an idle start step', () => {
  it('starts a service that does not run, and says so', async t => {
    const standIns = useStandIns(t)
    standIns.setState('web', 'exited')
    const { log, end } = await performIdle(t)
    assert.deepEqual(await end, { status: 'done', did: 'container web was not running, and was started' })
    assert.match(log.lines.join('\n'), /web is not running, so it is started/)
    assert.equal(standIns.stateOf('web'), 'running')
  })

  it('leaves alone a service that is running', async t => {
    const standIns = useStandIns(t)
    standIns.setState('web', 'running')
    const { log, end } = await performIdle(t)
    assert.deepEqual([await end, log.lines, standIns.changes()], ['unchanged', [], []])
  })

  it('refuses a service whose state is unknown, and does not say that the service does not run', async t => {
    const standIns = useStandIns(t)
    standIns.before('docker', 'inspect', 'echo no daemon; exit 1')
    const { log, end } = await performIdle(t)
    await assert.rejects(end, { code: 'step_failed', message: /is not known \(.*no daemon/ })
    assert.deepEqual([log.lines, standIns.changes()], [[], []])
  })

  it('does not say that it started a service that turned out to run', async t => {
    const standIns = useStandIns(t)
    standIns.setState('web', 'running')
    standIns.before('docker', 'inspect', '[ -e asked ] || { touch asked; echo no daemon; exit 1; }')
    const { log, end } = await performIdle(t)
    assert.deepEqual([await end, log.lines], ['unchanged', []])
  })
})

/** A command that runs this shell script, unless `more` names another program. */
function commandOf(script: string, more: Partial<HostCommand> = {}): HostCommand {
  return { command: ['/bin/sh', '-c', script], env: {}, timeoutSeconds: 60, ...more }
}

function requestFor(command: HostCommand, more: Partial<HostCommandRequest> = {}): HostCommandRequest {
  return { name: 'notify.deployed', command, args: [], changed: true, variables: {}, ...more }
}

/** Runs a command for a deployment whose project root does not matter. */
async function run(request: HostCommandRequest, tools: Partial<DeploymentTools> = {}): Promise<void> {
  await runHostCommand(deploymentOf(layoutOf('/nowhere'), { tools }), request)
}

function failsWith(code: ErrorCode, message: RegExp): (error: unknown) => boolean {
  return error => {
    assert.ok(error instanceof DeploymentError)
    assert.equal(error.code, code)
    assert.match(error.message, message)
    return true
  }
}

/** Adds these variables to the environment of this process, as a runner does, until the test ends. */
function pollute(t: TestContext, variables: Record<string, string>): void {
  Object.assign(process.env, variables)
  t.after(() => {
    for (const name of Object.keys(variables)) delete process.env[name]
  })
}

describe('runHostCommand', () => {
  it("appends its arguments to the command's own, without a shell", async t => {
    const seen = join(temporaryDirectory(t), 'seen')
    const command = ['/bin/sh', '-c', `printf '%s\\n' "$@" > '${seen}'`, 'sh', 'own'] as const
    await run(requestFor(commandOf('', { command }), { args: ['deployed', '$(id); *'] }))
    assert.equal(readFileSync(seen, 'utf8'), 'own\ndeployed\n$(id); *\n')
  })

  it('logs one line with its duration for a command that succeeded, and none for one that failed', async () => {
    const [succeeded, failed] = [collectLog(), collectLog()]
    await run(requestFor(commandOf('exit 0'), { args: ['a secret'] }), { log: succeeded })
    await assert.rejects(run(requestFor(commandOf('exit 1')), { log: failed }), { code: 'step_failed' })
    assert.equal(succeeded.lines.length, 1)
    assert.match(succeeded.lines[0] ?? '', /^info notify\.deployed .*\/bin\/sh.* \d+ ms\.$/)
    assert.deepEqual(failed.lines, [])
  })

  it('gives the command exactly the allow-listed environment', async t => {
    pollute(t, {
      'INPUT_API-KEY': 'secret',
      GITHUB_TOKEN: 'secret',
      ACTIONS_RUNTIME_TOKEN: 'secret',
      RUNNER_TRACKING_ID: 'github_1',
      AWS_SECRET_ACCESS_KEY: 'secret',
      LD_PRELOAD_OTHER: 'x',
    })
    const seen = join(temporaryDirectory(t), 'seen')
    const env = { PGHOST: 'db', DEPLOYMENT_VERSION: 'not this', PATH: '/usr/bin:/bin' }
    const variables = { PROVISION_PLUGIN_ID: 'greeter' }
    await run(requestFor(commandOf(`exec env > '${seen}'`, { env }), { variables }))
    const names = readFileSync(seen, 'utf8')
      .split('\n')
      .map(line => line.split('=')[0])
    const own = [
      'DEPLOYMENT_CHANGED',
      'DEPLOYMENT_HOST_ID',
      'DEPLOYMENT_ID',
      'DEPLOYMENT_KIND',
      'DEPLOYMENT_PREVIOUS_VERSION',
      'DEPLOYMENT_SLUG',
      'DEPLOYMENT_VERSION',
    ]
    const inherited = ['HOME', 'LANG', 'TZ'].filter(name => process.env[name] !== undefined)
    assert.deepEqual(
      names.filter(name => name && !['PWD', 'SHLVL', '_', 'OLDPWD'].includes(name)).sort(),
      [...own, ...inherited, 'PATH', 'PGHOST', 'PROVISION_PLUGIN_ID'].sort(),
    )
  })

  it('gives the command no input', async () => {
    await run(requestFor(commandOf('[ "$(readlink /proc/self/fd/0)" = /dev/null ] || [ ! -e /proc/self/fd ]')))
  })

  it('reports the exit code and the beginning of the output', async () => {
    const script = 'echo "::error::no database"; yes y | head -c 9000; exit 4'
    await assert.rejects(run(requestFor(commandOf(script))), error => {
      failsWith('step_failed', /exit code 4.*no database/)(error)
      assert.ok((error as Error).message.length < 2500)
      return true
    })
  })

  it('names the signal that ended the command', async () => {
    await assert.rejects(run(requestFor(commandOf('kill -USR2 $$'))), failsWith('step_failed', /SIGUSR2/))
  })

  it('reports that the command could not be started', async () => {
    const command = ['/no/such/program'] as const
    await assert.rejects(run(requestFor(commandOf('', { command }))), failsWith('step_failed', /ENOENT/))
  })

  it('asks a command that takes too long, and every process that it started, to end', async t => {
    const seen = join(temporaryDirectory(t), 'seen')
    const script = `(trap 'echo child >> "${seen}"; exit' TERM; while :; do sleep 0.05; done) &
      trap 'wait; echo parent >> "${seen}"; exit' TERM; echo begun; while :; do sleep 0.05; done`
    await assert.rejects(
      run(requestFor(commandOf(script, { timeoutSeconds: 10 }))),
      failsWith('step_timed_out', /begun/),
    )
    assert.equal(readFileSync(seen, 'utf8'), 'child\nparent\n')
  })

  it('kills a cancelled command that ignores the request to end', async t => {
    const deaf = join(temporaryDirectory(t), 'deaf')
    const script = `trap "" TERM; touch "${deaf}"; while :; do sleep 0.05; done`
    const controller = new AbortController()
    const reason = new Error('cancelled')
    const running = assert.rejects(
      run(requestFor(commandOf(script)), { signal: controller.signal }),
      error => error === reason,
    )
    await waitUntil('the command ignores SIGTERM', () => existsSync(deaf))
    controller.abort(reason)
    await running
  })
})

describe('keepPart', () => {
  for (const [count, more] of [
    [0, ''],
    [2, '; 2 files were added on this host'],
    [10_001, '; at least 10,000 files were added on this host'],
  ] as const)
    it(`counts the files that were added to the part: ${count}`, async t => {
      const layout = await prepareTemporaryHost(t)
      const { root, tree_record } = await installRecorded(layout, { 'main.py': 'x' })
      if (count > 0) writeFileSync(join(root, '0'), '')
      // Links one file many times: creating as many files takes ten times as long.
      for (let index = 1; index < count; index++) linkSync(join(root, '0'), join(root, String(index)))
      const context = await contextOf(t, deploymentOf(layout))
      const { staged: _, tree: __, ...facts } = partOf(layout, { ...GREETER, directory: 'plugins' })
      const intact = { tree_digest: null, tree_record }
      const { status, story } = await keepPart(context, { ...facts, intact })
      assert.deepEqual([status, story], ['unchanged', `plugins/greeter is already 2.0.0 with these files${more}`])
      assert.deepEqual(context.results.get('plugins/greeter'), { tree: intact })
    })
})
