import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError, type ErrorCode } from '../../../src/core/errors.ts'
import { type HostCommandRequest, runHostCommand } from '../../../src/install/steps/host-command.ts'
import { collectLog } from '../collected-log.ts'
import { factsOf } from '../prepared-host.ts'
import { temporaryDirectory } from '../temporary-directory.ts'
import { waitUntil } from '../wait-until.ts'

function requestFor(script: string, more: Partial<HostCommandRequest> = {}, timeoutSeconds = 60): HostCommandRequest {
  return {
    name: 'notify.deployed',
    command: { command: ['/bin/sh', '-c', script], env: {}, timeoutSeconds },
    args: [],
    variables: {},
    facts: factsOf(),
    log: collectLog(),
    signal: new AbortController().signal,
    ...more,
  }
}

function failsWith(code: ErrorCode, told: RegExp): (error: unknown) => boolean {
  return error => {
    assert.ok(error instanceof DeploymentError)
    assert.equal(error.code, code)
    assert.match(error.message, told)
    return true
  }
}

/** Puts these into the environment of this process, as a runner does, until the test has ended. */
function pollute(t: TestContext, variables: Record<string, string>): void {
  Object.assign(process.env, variables)
  t.after(() => {
    for (const name of Object.keys(variables)) delete process.env[name]
  })
}

describe('runHostCommand', () => {
  it('gives the command its arguments behind its own, without a shell', async t => {
    const seen = join(temporaryDirectory(t), 'seen')
    const command = ['/bin/sh', '-c', `printf '%s\\n' "$@" > '${seen}'`, 'sh', 'own'] as const
    const request = requestFor('', { args: ['deployed', '$(id); *'] })
    await runHostCommand({ ...request, command: { ...request.command, command } })
    assert.equal(readFileSync(seen, 'utf8'), 'own\ndeployed\n$(id); *\n')
  })

  it('tells in one line what ran well and how long, and nothing of what failed', async () => {
    const [well, failed] = [collectLog(), collectLog()]
    await runHostCommand(requestFor('exit 0', { log: well, args: ['a secret'] }))
    await assert.rejects(runHostCommand(requestFor('exit 1', { log: failed })))
    assert.equal(well.lines.length, 1)
    assert.match(well.lines[0] ?? '', /^info notify\.deployed .*\/bin\/sh.* \d+ ms\.$/)
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
    const request = requestFor('', { variables: { PROVISION_PLUGIN_ID: 'greeter' } })
    const command = ['/bin/sh', '-c', `exec env > '${seen}'`] as const
    await runHostCommand({ ...request, command: { ...request.command, command, env } })
    const names = readFileSync(seen, 'utf8')
      .split('\n')
      .map(line => line.split('=')[0])
    const own = [
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

  it('closes its standard input', async () => {
    await runHostCommand(requestFor('[ "$(readlink /proc/self/fd/0)" = /dev/null ] || [ ! -e /proc/self/fd ]'))
  })

  it('tells the exit code and the first of the output', async () => {
    const script = 'echo "::error::no database"; yes y | head -c 9000; exit 4'
    await assert.rejects(runHostCommand(requestFor(script)), error => {
      failsWith('step_failed', /exit code 4.*no database/)(error)
      assert.ok((error as Error).message.length < 2500)
      assert.doesNotMatch((error as Error).message, /::/)
      return true
    })
  })

  it('tells which signal ended it', async () => {
    await assert.rejects(runHostCommand(requestFor('kill -USR2 $$')), failsWith('step_failed', /SIGUSR2/))
  })

  it('tells that it could not be started', async () => {
    const request = requestFor('')
    const command = { ...request.command, command: ['/no/such/program'] as const }
    await assert.rejects(runHostCommand({ ...request, command }), failsWith('step_failed', /ENOENT/))
  })

  it('first asks a command that takes too long, and all that it started, to end', async t => {
    const seen = join(temporaryDirectory(t), 'seen')
    const script = `(trap 'echo child >> "${seen}"; exit' TERM; while :; do sleep 0.05; done) &
      trap 'wait; echo parent >> "${seen}"; exit' TERM; echo begun; while :; do sleep 0.05; done`
    await assert.rejects(runHostCommand(requestFor(script, {}, 10)), failsWith('step_timed_out', /begun/))
    assert.equal(readFileSync(seen, 'utf8'), 'child\nparent\n')
  })

  it('then ends by force one that ignores SIGTERM', async t => {
    const deaf = join(temporaryDirectory(t), 'deaf')
    const script = `trap "" TERM; touch "${deaf}"; while :; do sleep 0.05; done`
    const controller = new AbortController()
    const reason = new Error('cancelled')
    const running = assert.rejects(
      runHostCommand(requestFor(script, { signal: controller.signal })),
      error => error === reason,
    )
    await waitUntil('the command ignores SIGTERM', () => existsSync(deaf))
    controller.abort(reason)
    await running
  })
})
