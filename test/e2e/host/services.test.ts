import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { afterEach, beforeEach, describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { acceptedReports, commandsIn, listHost, readLocalReport } from '../harness/evidence.ts'
import { assertNoSecret } from '../harness/refusal.ts'
import { type HostStage, openHostStage, openOldHost, planWith, versionFiles } from '../harness/stage.ts'
import { serveUntrustedHub } from '../harness/untrusted-hub.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: HostStage
beforeEach(async () => {
  stage = await openHostStage()
})
afterEach(() => stage.close())

async function beginWithOld(): Promise<void> {
  await stage.close()
  stage = await openOldHost()
}

const SYSTEMD = 'version: 1\nsupervisor: systemd\n'

/** Serves the version that the supervisor started last. */
async function serveRunning(t: TestContext): Promise<string> {
  const server = createServer((_, response) => response.end(`{"version":"${stage.standIns.running()}"}`))
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.after(() => void server.close())
  return `http://127.0.0.1:${(server.address() as { port: number }).port}/health`
}

function assertDeployed(result: ActionResult): void {
  assert.deepEqual([result.exitCode, result.outputs['outcome']], [0, 'success'], result.log)
}

function statusesOf(result: ActionResult): string[] {
  return readLocalReport(result).steps.map(({ action, status }) => `${action} ${status}`)
}

describe('a plan with every action that a host can run', () => {
  it('seeds settings, provisions, stops, starts, restarts, checks health and notifies', {
    skip: ONLY_IN_CI,
  }, async t => {
    await stage.publish('1.0.0', versionFiles('1.0.0'))
    const provision = stage.standIns.add('make-db', 'echo made')
    const notify = stage.standIns.add('notify-team', '')
    stage.writeHostConfig(`${SYSTEMD}plugins:
  greeter: {unit: hello@1.service, healthcheck: {http: "${await serveRunning(t)}", body: '"version":"{version}"'}}
provision: {greeter: {command: [${provision}, --fast], env: {PGHOST: localhost}}}
notify: {deployed: {command: [${notify}]}}
`)
    stage.writePlan(
      planWith(
        'action: write_env, plugin: greeter, from: plugins/greeter/.env.template',
        'action: provision, plugin: greeter',
        'action: stop, plugin: greeter',
        'action: start, plugin: greeter',
        'action: restart, plugin: greeter',
        'action: healthcheck, plugin: greeter, timeout: 60s',
        'action: notify, event: deployed, message: "greeter is new; $(id)"',
      ),
    )
    const result = await stage.deployHere()
    assertDeployed(result)
    assertNoSecret(stage, result)
    assert.deepEqual(stage.standIns.changes(), [
      ['make-db', '--fast', 'greeter'],
      ['systemctl', 'stop', 'hello@1.service'],
      ['systemctl', 'start', 'hello@1.service'],
      ['systemctl', 'restart', 'hello@1.service'],
      ['notify-team'],
    ])
    assert.equal(stage.standIns.running(), '1.0.0')
    const received = stage.standIns.environmentOf('notify-team')
    assert.deepEqual([received['NOTIFY_EVENT'], received['NOTIFY_MESSAGE']], ['deployed', 'greeter is new; $(id)'])
    assert.deepEqual(statusesOf(result).slice(-7), [
      'write_env done',
      'provision done',
      'stop done',
      'start done',
      'restart done',
      'healthcheck done',
      'notify done',
    ])
    assert.match(result.log, /HTTP 200, with `"version":"1\.0\.0"`/)
    assert.deepEqual(
      readLocalReport(result)
        .states.map(({ state }) => state)
        .slice(-3),
      ['installing', 'healthchecking', 'succeeded'],
    )
  })

  it('gives the commands of the host their own environment, with nothing from the runner', async () => {
    await beginWithOld()
    const provision = stage.standIns.add('make-db', 'echo made')
    stage.writeHostConfig(`${SYSTEMD}provision: {greeter: {command: [${provision}], env: {PGHOST: db}}}\n`)
    stage.writePlan(planWith('action: provision, plugin: greeter', 'action: restart, plugin: greeter'))
    const secrets = { GITHUB_TOKEN: 'a-token', ACTIONS_RUNTIME_TOKEN: 'a-token', AWS_SECRET_ACCESS_KEY: 'a-token' }
    const result = await stage.deployHere({}, { env: { ...secrets, TZ: 'UTC', LANG: 'C' } })
    assertDeployed(result)
    // The shell adds these itself.
    const { PWD: _, OLDPWD: __, SHLVL: ___, _: ____, ...seen } = stage.standIns.environmentOf('make-db')
    const { deployment_id } = readLocalReport(result)
    assert.deepEqual(seen, {
      PATH: stage.standIns.path,
      HOME: process.env['HOME'],
      TZ: 'UTC',
      LANG: 'C',
      PGHOST: 'db',
      PROVISION_PLUGIN_ID: 'greeter',
      DEPLOYMENT_CHANGED: 'true',
      DEPLOYMENT_ID: deployment_id,
      DEPLOYMENT_KIND: 'plugin',
      DEPLOYMENT_SLUG: 'greeter',
      DEPLOYMENT_VERSION: '2.0.0',
      DEPLOYMENT_PREVIOUS_VERSION: '1.0.0',
      DEPLOYMENT_HOST_ID: 'host-1',
    })
    const names = Object.keys(stage.standIns.environmentOf('systemctl'))
    assert.deepEqual(
      names.filter(name => /INPUT_|GITHUB_|ACTIONS_|RUNNER_|AWS_|DEPLOYMENT_/.test(name)),
      [],
    )
  })
})

describe('the supervisors', () => {
  const kinds = {
    systemd: [
      `${SYSTEMD}systemd: {scope: user, unit: "app-{id}.service"}\n`,
      ['systemctl', '--user', 'restart', 'app-greeter.service'],
    ],
    docker: ['version: 1\nsupervisor: docker\ndocker: {container: "app-{id}"}\n', ['docker', 'restart', 'app-greeter']],
    kubernetes: [
      'version: 1\nsupervisor: kubernetes\nkubernetes: {namespace: apps, deployment: "app-{id}", kubeconfig: /etc/kube, context: prod}\n',
      [
        'kubectl',
        '--kubeconfig=/etc/kube',
        '--context=prod',
        '--namespace=apps',
        'rollout',
        'restart',
        'deployment/app-greeter',
      ],
    ],
  } as const
  for (const [kind, [config, expected]] of sampled(Object.entries(kinds), 1)) {
    it(`include ${kind}, which restarts the service and reports its state`, async () => {
      await stage.publish('1.0.0', versionFiles('1.0.0'))
      stage.writeHostConfig(config)
      stage.writePlan(planWith('action: restart, plugin: greeter', 'action: healthcheck, plugin: greeter, timeout: 60'))
      assertDeployed(await stage.deployHere())
      assert.deepEqual(stage.standIns.changes(), [expected])
      assert.equal(stage.standIns.running(), '1.0.0')
    })
  }

  it('are not called under supervisor: none, with a notice for each step', async () => {
    await stage.publish('1.0.0', versionFiles('1.0.0'))
    stage.writeHostConfig('version: 1\nsupervisor: none\n')
    stage.writePlan(planWith('action: restart', 'action: healthcheck'))
    const result = await stage.deployHere()
    assertDeployed(result)
    assert.deepEqual(statusesOf(result).slice(-2), ['restart skipped', 'healthcheck skipped'])
    assert.equal(commandsIn(result.log, 'notice').length, 2)
    assert.deepEqual(stage.standIns.calls(), [])
  })

  it('act on the project-wide unit in steps without a plugin', async () => {
    await stage.publish('1.0.0', versionFiles('1.0.0'))
    stage.writeHostConfig(`${SYSTEMD}systemd: {project_unit: app.service}\n`)
    stage.writePlan(planWith('action: restart', 'action: restart, plugin: greeter'))
    assertDeployed(await stage.deployHere())
    assert.deepEqual(
      stage.standIns.changes().map(call => call[2]),
      ['app.service', 'greeter.service'],
    )
  })
})

describe('notify', () => {
  it('passes a message that looks like an option only in the environment', async () => {
    const message = '--use-askpass=/srv/app/plugins/greeter/evil.sh'
    await beginWithOld()
    stage.writeHostConfig(`${SYSTEMD}notify: {deployed: {command: [${stage.standIns.add('notify', '')}, --quiet]}}\n`)
    stage.writePlan(planWith(`action: notify, event: deployed, message: ${JSON.stringify(message)}`))
    assertDeployed(await stage.deployHere())
    assert.deepEqual(stage.standIns.changes(), [['notify', '--quiet']])
    const { NOTIFY_EVENT, NOTIFY_MESSAGE } = stage.standIns.environmentOf('notify')
    assert.deepEqual([NOTIFY_EVENT, NOTIFY_MESSAGE], ['deployed', message])
  })

  it('is skipped with one notice that names its event when this host has no command for it', async () => {
    await beginWithOld()
    stage.writeHostConfig(`${SYSTEMD}notify: {other: {command: [${stage.standIns.add('notify', '')}]}}\n`)
    stage.writePlan(planWith('action: notify, event: deployed'))
    const result = await stage.deployHere()
    assertDeployed(result)
    assert.deepEqual(stage.standIns.changes(), [])
    const notices = commandsIn(result.log, 'notice').filter(line => line.includes('notify.deployed'))
    assert.deepEqual([notices.length, commandsIn(result.log, 'warning')], [1, []])
    assert.equal(readLocalReport(result).steps.at(-1)?.status, 'skipped')
  })

  it('causes a warning and nothing else when it fails', { skip: ONLY_IN_CI }, async () => {
    await beginWithOld()
    stage.writeHostConfig(
      `${SYSTEMD}notify: {deployed: {command: [${stage.standIns.add('notify', 'echo busy >&2; exit 7')}]}}\n`,
    )
    stage.writePlan(planWith('action: notify, event: deployed'))
    const result = await stage.deployHere()
    assertDeployed(result)
    assert.equal(result.outputs['changed'], 'true')
    assert.equal(commandsIn(result.log, 'warning').length, 1, result.log)
    assert.match(result.log, /busy/)
    const { status, error } = readLocalReport(result).steps.at(-1) ?? {}
    assert.equal(status, 'warned')
    assert.match(error ?? '', /exit code 7.*busy/)
    assert.equal(acceptedReports(stage).at(-1)?.status, 'success')
  })
})

describe('a health check', () => {
  it('can pass on the answer of the supervisor alone', { skip: ONLY_IN_CI }, async () => {
    await beginWithOld()
    stage.writeHostConfig(SYSTEMD)
    stage.standIns.setState('greeter.service', 'active')
    stage.writePlan(planWith('action: healthcheck, plugin: greeter, timeout: 60'))
    assertDeployed(await stage.deployHere())
  })

  it('does not pass while the supervisor keeps restarting the service', { skip: ONLY_IN_CI }, async () => {
    await beginWithOld()
    stage.writeHostConfig(SYSTEMD)
    stage.standIns.before('systemctl', 'show', 'begin')
    stage.writePlan(planWith('action: restart, plugin: greeter', 'action: healthcheck, plugin: greeter, timeout: 20'))
    const { outputs, log } = await stage.deployHere()
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['rolled_back', 'unhealthy'], log)
    assert.match(log, /it started again during the check/)
  })
})

describe('the output of a command', () => {
  it('shows no part of a secret at the point where it is cut', async () => {
    await beginWithOld()
    const shown = 2048 - stage.apiKey.length / 2
    const leaky = stage.standIns.add('leaky', `printf '%${Math.floor(shown)}s' x; echo '${stage.apiKey}'; exit 1`)
    stage.writeHostConfig(`${SYSTEMD}provision: {greeter: {command: [${leaky}]}}\n`)
    stage.writePlan(planWith('action: provision, plugin: greeter'))
    const result = await stage.deployHere()
    assert.equal(result.outputs['error-code'], 'step_failed', result.log)
    assertNoSecret(stage, result, [])
    const published = JSON.stringify([readLocalReport(result), acceptedReports(stage), result.summary, result.outputs])
    const logged = result.log.split('\n').filter(line => !line.startsWith('::add-mask::'))
    for (const text of [published, ...logged]) assert.ok(!text.includes(`x${stage.apiKey.slice(0, 4)}`))
    assert.match(published, /x\*\*\*\u2026 \(cut\)/)
  })
})

describe('a plan that the host config does not cover', () => {
  const gaps: Record<string, [string, string]> = {
    'a supervisor': ['version: 1\n', 'action: restart'],
    'a supervisor or a health check': ['version: 1\n', 'action: healthcheck, plugin: greeter'],
    'time for a stable health check': [
      `${SYSTEMD}plugins: {greeter: {healthcheck: {tcp: "h:1", stable_for: 10s}}}\n`,
      'action: healthcheck, plugin: greeter, timeout: 10s',
    ],
    'a provision command': [SYSTEMD, 'action: provision, plugin: greeter'],
  }
  for (const [name, [config, step]] of sampled(Object.entries(gaps), 2)) {
    for (const dryRun of sampled(['false', 'true'], 1)) {
      it(`is refused for lack of ${name} before any request to the hub (dry run: ${dryRun})`, async t => {
        const hub = await serveUntrustedHub(t)
        stage.writeHostConfig(config)
        stage.writePlan(planWith(step))
        const { exitCode, outputs } = await stage.deployHere({ 'hub-url': hub.url, 'dry-run': dryRun })
        assert.deepEqual([exitCode, outputs['error-code'], outputs['outcome']], [1, 'invalid_plan', 'failed'])
        assert.deepEqual([hub.requestsFor('detail').length, hub.requestsFor('artifact').length], [0, 0])
        assert.deepEqual([listHost(stage.root), stage.standIns.calls()], [{}, []])
      })
    }
  }

  it('is refused when there is no host config at all', async t => {
    const hub = await serveUntrustedHub(t)
    stage.writePlan(planWith('action: restart', 'action: provision, plugin: greeter'))
    const { outputs, log } = await stage.deploy({ 'hub-url': hub.url })
    assert.equal(outputs['error-code'], 'invalid_plan')
    assert.equal(commandsIn(log, 'error').length, 2)
    assert.deepEqual([hub.requestsFor('detail').length, hub.requestsFor('artifact').length], [0, 0])
  })
})

describe('a dry run', () => {
  it('touches no service', async () => {
    await beginWithOld()
    stage.writeHostConfig(SYSTEMD)
    stage.writePlan(planWith('action: restart'))
    assertDeployed(await stage.deployHere({ 'dry-run': 'true' }))
    assert.deepEqual(stage.standIns.calls(), [])
  })
})

describe('an action that the supervisor refuses', () => {
  const ILL = /not healthy|no healthy version|not as it was|The same happened again/
  const POLKIT = /polkit rule .*docs\/security\.md(?:#|&#35;)what-the-runners-user-needs/
  const rows: [string, string, [name: string, running: string], 'systemctl' | 'docker' | 'kubectl', string, RegExp][] =
    [
      [
        'a restart that polkit denies',
        SYSTEMD,
        ['greeter.service', 'active'],
        'systemctl',
        'Failed to restart greeter.service: Interactive authentication required.',
        POLKIT,
      ],
      [
        'a masked unit',
        SYSTEMD,
        ['greeter.service', 'active'],
        'systemctl',
        'Failed to restart greeter.service: Unit greeter.service is masked.',
        /Unmask the unit/,
      ],
      [
        'a container that may not be restarted',
        'version: 1\nsupervisor: docker\n',
        ['greeter', 'running'],
        'docker',
        'authorization denied by plugin: no',
        /docs\/security\.md(?:#|&#35;)what-the-runners-user-needs/,
      ],
      [
        'a forbidden rollout',
        'version: 1\nsupervisor: kubernetes\nkubernetes: {namespace: apps}\n',
        ['greeter', '2'],
        'kubectl',
        'Error from server (Forbidden): deployments.apps is forbidden',
        /docs\/security\.md(?:#|&#35;)what-the-runners-user-needs/,
      ],
    ]
  for (const [name, config, [service, running], program, words, advice] of sampled(rows, 2)) {
    it(`leaves the old process running, and says so (${name})`, async () => {
      await beginWithOld()
      stage.writeHostConfig(config)
      stage.writePlan(
        planWith('action: restart, plugin: greeter', 'action: healthcheck, plugin: greeter, timeout: 60s'),
      )
      stage.standIns.setState(service, running)
      stage.standIns.before(program, 'restart', `echo "${words}" >&2; exit 1`)
      const { outputs, log, summary } = await stage.deployHere()
      assert.deepEqual([outputs['outcome'], outputs['error-code']], ['rolled_back', 'step_failed'], log)
      const [message = ''] = acceptedReports(stage)
        .map(report => report.error_message ?? '')
        .slice(-1)
      for (const text of [log, summary, message]) {
        assert.match(text, advice)
        assert.match(text, /never stopped/)
        assert.doesNotMatch(text, ILL)
      }
      assert.match(summary, /^### .* 1\.0\.0 is installed again, and its service never stopped\n/)
      assert.equal(stage.standIns.changes().length, 1)
    })
  }

  it('has changed nothing if no file was changed either', async () => {
    await beginWithOld()
    stage.writeHostConfig(SYSTEMD)
    stage.writePlan(planWith('action: restart, plugin: greeter'))
    stage.standIns.setState('greeter.service', 'active')
    stage.standIns.before('systemctl', 'restart', 'echo "Access denied" >&2; exit 1')
    const result = await stage.deployHere({ version: '1.0.0', redeploy: 'true' })
    assert.deepEqual([result.outputs['outcome'], result.outputs['error-code']], ['failed', 'step_failed'], result.log)
    assert.equal(readLocalReport(result).rollback?.stopped, false)
    assert.match(result.summary, /\*\*Now:\*\* 1\.0\.0, .*its service never stopped\./)
  })

  it('is not even tried if the Docker daemon does not answer, and no version is called ill', async () => {
    await beginWithOld()
    stage.writeHostConfig('version: 1\nsupervisor: docker\n')
    stage.writePlan(planWith('action: restart, plugin: greeter', 'action: healthcheck, plugin: greeter, timeout: 1s'))
    stage.standIns.before('docker', 'inspect', 'echo "Cannot connect to the Docker daemon" >&2; exit 1')
    const { outputs, log, summary } = await stage.deployHere()
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['rolled_back', 'step_failed'], log)
    assert.match(summary, /The service was not restarted/)
    assert.doesNotMatch(log + summary, ILL)
    assert.deepEqual(stage.standIns.changes(), [])
  })
})

describe('a service that does not run what is installed', () => {
  const CHECKED = ['action: restart, plugin: greeter', 'action: healthcheck, plugin: greeter, timeout: 2s']

  async function installChecked(t: TestContext, answer: () => [status: number, body: string]): Promise<void> {
    await beginWithOld()
    const server = createServer((_, response) => {
      const [status, body] = answer()
      response.writeHead(status).end(body)
    })
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    t.after(() => void server.close())
    const { port } = server.address() as { port: number }
    stage.writeHostConfig(
      `${SYSTEMD}plugins: {greeter: {healthcheck: {http: "http://127.0.0.1:${port}/", body: "v{version}"}}}\n`,
    )
    stage.writePlan(planWith(...CHECKED))
    stage.standIns.setState('greeter.service', 'active')
  }

  it('is restarted by a run that changes nothing', { skip: ONLY_IN_CI }, async t => {
    await installChecked(t, () => [200, stage.standIns.changes().length > 0 ? 'v1.0.0' : 'v0.9.0'])
    const result = await stage.deployHere({ version: '1.0.0' })
    assertDeployed(result)
    assert.match(result.log, /::warning::unit greeter\.service does not run the installed version, so it is restarted/)
    assert.deepEqual(stage.standIns.changes(), [['systemctl', 'restart', 'greeter.service']])
    assertDeployed(await stage.deployHere({ version: '1.0.0' }))
    assert.equal(stage.standIns.changes().length, 1)
  })

  it('is not called as before if it is ill, and is not restarted for that', { skip: ONLY_IN_CI }, async t => {
    await installChecked(t, () => [503, 'v1.0.0'])
    const { outputs, log, summary } = await stage.deployHere({ version: '1.0.0' })
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'unhealthy'], log)
    assert.match(summary, /\*\*Now:\*\* 1\.0\.0 is installed, but \*\*not healthy\*\*\./)
    assert.deepEqual(stage.standIns.changes(), [])
  })
})
