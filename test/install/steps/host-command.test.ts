import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError, type ErrorCode } from '../../../src/core/errors.ts'
import type { HostCommand } from '../../../src/core/plan/host-config.ts'
import type { DeploymentTools } from '../../../src/install/deployment/deployment.ts'
import { layoutOf } from '../../../src/install/host/layout.ts'
import { type HostCommandRequest, runHostCommand } from '../../../src/install/steps/host-command.ts'
import { collectLog } from '../collected-log.ts'
import { deploymentOf } from '../prepared-deployment.ts'
import { temporaryDirectory } from '../temporary-directory.ts'
import { waitUntil } from '../wait-until.ts'

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
    await assert.rejects(run(requestFor(commandOf('exit 1')), { log: failed }))
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
      assert.doesNotMatch((error as Error).message, /::/)
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
