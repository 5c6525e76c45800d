import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parse } from 'yaml'
import { yankVersion } from '../../../hub/marketplace/catalogue.ts'
import { missingTools, whyLeftToCi } from '../../extent.ts'
import { temporaryDirectory } from '../../folders.ts'
import { makeCertificate, serve, serveTls } from '../../net/loopback-server.ts'
import { PLUGIN_PLAN, pluginFiles, SIGNING_SECRET, writeFiles } from '../harness/stage.ts'
import { outline, outputsOf, type WorkflowResult, whyNoEngine } from './engine.ts'
import { type FleetStage, HOSTS, openFleetStage } from './fleet-stage.ts'

const ROOT = join(import.meta.dirname, '../../..')
const ROLLOUT = parse(read('.github/workflows/rollout.yml'))
const CALLER = read('examples/workflows/rollout.yml')
const ONLY_IN_CI = whyLeftToCi()

describe('the workflow rollout.yml', { skip: whyNoEngine() }, () => {
  it('installs the verified version on the canary, then on the others, even if a newer version appears', async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    await onCheckOfCanary(t, fleet, async nth => {
      if (nth === 0) await fleet.release('3.0.0')
    })
    const result = await rollOut(fleet, { version: '2.0.0' })
    assert.deepEqual(outline(result), [
      'gate: success',
      'canary: success',
      'health: success',
      'hosts (app-2): success',
      'fleet: success',
    ])
    assert.equal(result.exitCode, 0)
    assert.equal(outputsOf(result, 'health')['changed'], 'false')
    assert.deepEqual(fleet.versions(), ['2.0.0', '2.0.0'])
    assert.deepEqual(fleet.installedFiles('app-1'), fleet.installedFiles('app-2'))
    assert.deepEqual(await fleet.hosts(), ['app-1 2.0.0 success', 'app-2 2.0.0 success'])
  })

  it('rolls out without a plan, with the checks of the host configs', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const result = await rollOut(fleet, { caller: CALLER.replace(/^ *install-plan: .*\n/m, '') })
    assert.equal(result.exitCode, 0, result.log)
    assert.equal(result.log.match(/install-plan names no file, so this is the default plan/g)?.length, 4)
    assert.deepEqual(fleet.versions(), ['2.0.0', '2.0.0'])
  })

  it('touches no host when the signature is wrong', async t => {
    const fleet = await openOldFleet(t)
    await fleet.publish('2.0.0', pluginFiles('2.0.0'), { signingSecret: 'of another developer' })
    const before = await everythingIn(fleet)
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result), ['gate: failure'])
    assert.equal(result.exitCode, 1)
    assert.equal(outputsOf(result, 'gate')['error-code'], 'signature_mismatch')
    assert.deepEqual(await everythingIn(fleet), before)
  })

  for (const [name, hosts, code, found] of [
    ['the list of hosts is not JSON', 'app-2, app-9', undefined, /hosts must be a JSON list .* found app-2, app-9\./],
    ['the third host has a bad config', '["app-2", "app-9"]', 'invalid_host_config', /file=deploy\/hosts\/app-9\.yaml/],
    [
      'the plan does not fit the third host',
      '["app-2", "app-8"]',
      'invalid_plan',
      /but deploy\/hosts\/app-8\.yaml has no/,
    ],
    [
      'the third host has no config',
      '["app-2", "app-7"]',
      'invalid_input',
      /host-config names deploy\/hosts\/app-7\.yaml/,
    ],
  ] as const)
    it(`touches no host when ${name}`, async t => {
      const fleet = await openOldFleet(t)
      await fleet.release('2.0.0')
      fleet.write('deploy/hosts/app-9.yaml', 'version: 1\nsupervisr: none\n')
      fleet.write('deploy/hosts/app-8.yaml', 'version: 1\n')
      const before = await everythingIn(fleet)
      const result = await rollOut(fleet, { caller: callerWith(hosts) })
      assert.deepEqual([outline(result), result.exitCode], [['gate: failure'], 1], result.log)
      assert.equal(outputsOf(result, 'gate')['error-code'], code)
      assert.match(result.log, found)
      assert.deepEqual(await everythingIn(fleet), before)
    })

  it('passes a private authority, kept paths and settings to every job, and no empty input', {
    skip: missingTools('openssl'),
  }, async t => {
    const fleet = await openOldFleet(t)
    const template = { 'greeter.env.template': 'GREETING=hello\n' }
    await fleet.publish('2.0.0', { ...pluginFiles('2.0.0', { healthy: '' }), ...template })
    const env = 'action: write_env, plugin: greeter, from: plugins/greeter/greeter.env.template'
    fleet.write('deploy/install.yaml', `${PLUGIN_PLAN}  - {id: env, ${env}, depends_on: [files]}\n`)
    const { url, cert } = await openPrivateHub(t, fleet)
    fleet.write('deploy/ca.pem', cert)
    for (const host of HOSTS) writeFiles(join(fleet.rootOf(host), 'plugins/greeter/uploads'), { photo: host })
    const more = { 'ca-file': 'deploy/ca.pem', 'keep-paths': 'uploads', 'keep-snapshots': '', redeploy: '' }
    const lines = Object.entries(more).map(([name, value]) => `      ${name}: '${value}'\n`)
    // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of the workflow
    const settings = '      SETTINGS: ${{ secrets.GREETER_SETTINGS }}\n'
    const caller = CALLER.replace('https://hub.example.com', url)
      .replace('      canary:', `${lines.join('')}      canary:`)
      .concat(settings)
    const secrets = { HUB_API_KEY: fleet.apiKey, GREETER_SIGNING_SECRET: SIGNING_SECRET }
    const result = await rollOut(fleet, { caller, secrets: { ...secrets, GREETER_SETTINGS: 'GREETING=good morning' } })
    assert.equal(result.exitCode, 0, result.log)
    assert.deepEqual(fleet.versions(), ['2.0.0', '2.0.0'])
    for (const host of HOSTS) {
      const plugins = join(fleet.rootOf(host), 'plugins')
      assert.equal(readFileSync(join(plugins, 'greeter/uploads/photo'), 'utf8'), host)
      assert.match(readFileSync(join(plugins, 'greeter.env'), 'utf8'), /^GREETING=.*good morning/m)
    }
  })

  it('rolls an unhealthy canary back and touches no other host', async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0', 'broken')
    fleet.write('deploy/hosts/app-9.yaml', 'version: 1\nsupervisor: none\n')
    const [canary, other] = [fleet.installedFiles('app-1'), fleet.files('app-2')]
    const result = await rollOut(fleet, { caller: callerWith('["app-2", "app-9"]') })
    assert.deepEqual(outline(result), ['gate: success', 'canary: failure', 'fleet: failure'])
    const { outcome, 'error-code': code } = outputsOf(result, 'canary')
    assert.deepEqual([outcome, code], ['rolled_back', 'unhealthy'])
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
    assert.deepEqual([fleet.installedFiles('app-1'), fleet.files('app-2')], [canary, other])
    assert.deepEqual(await fleet.hosts(), ['app-1 2.0.0 rolled_back', 'app-2 1.0.0 success'])
    const { 'error-code': fleetCode, versions = '' } = outputsOf(result, 'fleet')
    assert.equal(fleetCode, 'fleet_out_of_sync')
    assert.deepEqual(JSON.parse(versions), { '1.0.0': ['app-1', 'app-2'] })
    assertStopped(result, 'Stopped at app-1; 2 hosts untouched')
  })

  it('rolls the canary back when it becomes unhealthy later, and touches no other host', {
    skip: ONLY_IN_CI,
  }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const [canary, other] = [fleet.installedFiles('app-1'), fleet.files('app-2')]
    const counted = join(fleet.folder, 'checks')
    // The old version is always healthy, and the new version only at its first check.
    const check = `grep -q 1.0.0 ${fleet.rootOf('app-1')}/plugins/greeter/plugin.yaml || [ ! -e ${counted} ]`
    fleet.checkHealth('app-1', `${check} && touch ${counted}`)
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result), ['gate: success', 'canary: success', 'health: failure', 'fleet: failure'])
    assert.equal(outputsOf(result, 'health')['error-code'], 'unhealthy')
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
    assert.deepEqual([fleet.installedFiles('app-1'), fleet.files('app-2')], [canary, other])
    assert.deepEqual(await fleet.hosts(), ['app-1 1.0.0 success', 'app-2 1.0.0 success'])
    assertStopped(result, 'Stopped at app-1; 1 host untouched')
  })

  it('leaves alone a canary on which an operator has installed the old version during the soak', {
    skip: ONLY_IN_CI,
  }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const other = fleet.files('app-2')
    const here = { 'project-root': fleet.rootOf('app-1'), 'host-id': 'app-1' }
    await onCheckOfCanary(t, fleet, async nth => {
      if (nth === 1) await fleet.deploy({ version: '1.0.0', ...here })
    })
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result), ['gate: success', 'canary: success', 'health: failure', 'fleet: failure'])
    assert.equal(outputsOf(result, 'health')['error-code'], 'not_installed')
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
    assert.deepEqual(fleet.files('app-2'), other)
  })

  it('rolls a cancelled leg back and does not call the fleet in sync', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const before = fleet.installedFiles('app-2')
    fleet.checkHealth('app-2', cancelOnce(fleet, 'kill -INT $PPID'))
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result).slice(3), ['hosts (app-2): failure', 'fleet: failure'])
    const { outcome, 'error-code': code } = outputsOf(result, 'hosts')
    assert.deepEqual([outcome, code], ['rolled_back', 'cancelled'])
    assert.deepEqual(fleet.versions(), ['2.0.0', '1.0.0'])
    assert.deepEqual(fleet.installedFiles('app-2'), before)
    assert.deepEqual(await fleet.hosts(), ['app-1 2.0.0 success', 'app-2 2.0.0 rolled_back'])
    assertStopped(result, 'Stopped at app-2; 0 hosts untouched')
  })

  it('stops when the canary is cancelled', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const [canary, other] = [fleet.installedFiles('app-1'), fleet.files('app-2')]
    fleet.checkHealth('app-1', cancelOnce(fleet, 'kill -INT $PPID'))
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result), ['gate: success', 'canary: failure', 'fleet: failure'])
    assert.deepEqual([fleet.installedFiles('app-1'), fleet.files('app-2')], [canary, other])
  })

  it('recovers a host whose leg was killed when the run was cancelled', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const [canary, other] = [fleet.installedFiles('app-1'), fleet.files('app-2')]
    // The engine is the parent of the step's process. It kills that process, runs the post step and begins no further
    // step.
    fleet.checkHealth('app-1', cancelOnce(fleet, "kill -INT $(cut -d' ' -f4 /proc/$PPID/stat)"))
    const result = await rollOut(fleet)
    assert.notEqual(result.exitCode, 0)
    assert.equal(outputsOf(result, 'canary')['outcome'], 'interrupted')
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
    assert.deepEqual([fleet.installedFiles('app-1'), fleet.files('app-2')], [canary, other])
    const begun = result.jobs.filter(({ steps }) => steps.some(({ result }) => result !== undefined))
    assert.deepEqual(
      begun.map(({ id }) => id),
      ['gate', 'canary'],
    )
  })

  it('replaces no newer version when the hub offers an older one as the latest', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    await fleet.install('2.0.0')
    yankVersion(fleet.store, { kind: 'plugin', slug: 'greeter', version: '2.0.0' })
    const other = fleet.files('app-2')
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result), ['gate: success', 'canary: failure', 'fleet: failure'])
    assert.equal(outputsOf(result, 'canary')['error-code'], 'downgrade_refused')
    assert.deepEqual(fleet.versions(), ['2.0.0', '2.0.0'])
    assert.deepEqual(fleet.files('app-2'), other)
  })

  it('stops at the next host when a newer version appears during a rollout of latest', {
    skip: ONLY_IN_CI,
  }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const other = fleet.installedFiles('app-2')
    await onCheckOfCanary(t, fleet, async nth => {
      if (nth === 1) await fleet.release('3.0.0')
    })
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result).slice(2), ['health: success', 'hosts (app-2): failure', 'fleet: failure'])
    assert.equal(outputsOf(result, 'hosts')['error-code'], 'digest_mismatch')
    assert.deepEqual(fleet.versions(), ['2.0.0', '1.0.0'])
    assert.deepEqual(fleet.installedFiles('app-2'), other)
  })

  it('leaves alone a host that runs a version newer than the latest', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('3.0.0')
    await fleet.deploy({ version: '3.0.0', 'project-root': fleet.rootOf('app-2'), 'host-id': 'app-2' })
    yankVersion(fleet.store, { kind: 'plugin', slug: 'greeter', version: '3.0.0' })
    await fleet.release('2.0.0')
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result).slice(2), ['health: success', 'hosts (app-2): failure', 'fleet: failure'])
    assert.equal(outputsOf(result, 'hosts')['error-code'], 'downgrade_refused')
    assert.deepEqual(fleet.versions(), ['2.0.0', '3.0.0'])
  })

  for (const version of ['latest', '1.0.0']) {
    it(`stops at the canary when the hub has swapped the bytes of the installed version (${version})`, async t => {
      const fleet = await openOldFleet(t)
      await fleet.publish('1.0.0', pluginFiles('1.0.0', { swapped: '' }), { replace: true })
      const [canary, other] = [fleet.installedFiles('app-1'), fleet.files('app-2')]
      const result = await rollOut(fleet, { version })
      assert.deepEqual(outline(result), ['gate: success', 'canary: failure', 'fleet: failure'])
      assert.equal(outputsOf(result, 'canary')['error-code'], 'version_reused')
      assert.deepEqual([fleet.installedFiles('app-1'), fleet.files('app-2')], [canary, other])
    })
  }

  it('installs no other bytes under the version that the gate verified', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const before = fleet.installedFiles('app-2')
    await onCheckOfCanary(t, fleet, async nth => {
      const files = pluginFiles('2.0.0', { other: '' })
      if (nth === 1) await fleet.publish('2.0.0', files, { replace: true })
    })
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result).slice(2), ['health: success', 'hosts (app-2): failure', 'fleet: failure'])
    assert.equal(outputsOf(result, 'hosts')['error-code'], 'digest_mismatch')
    assert.deepEqual(fleet.installedFiles('app-2'), before)
  })

  it('deploys only to the canary when there are no other hosts', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const other = fleet.files('app-2')
    const result = await rollOut(fleet, { caller: CALLER.replace(/hosts: '.*'/, "hosts: '[ ]'") })
    assert.deepEqual(outline(result), ['gate: success', 'canary: success', 'health: success', 'fleet: success'])
    assert.deepEqual(fleet.files('app-2'), other)
  })

  it('passes wait-seconds to the fleet check even when there are no other hosts', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    // The fleet check refuses this wait, which proves that the workflow passes `wait-seconds` on.
    const caller = CALLER.replace(/hosts: '.*'/, "hosts: '[]'\n      wait-seconds: -1")
    const result = await rollOut(fleet, { caller })
    assert.deepEqual(outline(result), ['gate: success', 'canary: success', 'health: success', 'fleet: failure'])
    assert.equal(outputsOf(result, 'fleet')['error-code'], 'invalid_input')
  })
})

describe('the first step of rollout.yml', { skip: missingTools('bash') }, () => {
  const [first] = ROLLOUT.jobs.gate.steps
  const LIST = 'hosts must be a JSON list of up to 256 different host names (letters, digits, ".", "_", "-")'
  const names = (count: number) => JSON.stringify(Array.from({ length: count }, (_, index) => `app-${index + 2}`))

  /** Runs the step as a runner does. Returns its output and the paths of the host configs. */
  function check(t: TestContext, env: Record<string, string>) {
    const [script, output] = ['script', 'output'].map(name => join(temporaryDirectory(t), name)) as [string, string]
    writeFileSync(script, first.run)
    writeFileSync(output, '')
    const given = {
      CANARY: 'app-1',
      HOSTS: '[]',
      HOST_CONFIG: 'hosts/<host>.yaml',
      SOAK_SECONDS: '60',
      MAX_PARALLEL: '1',
    }
    const { status, stdout } = spawnSync('bash', ['--noprofile', '--norc', '-eo', 'pipefail', script], {
      env: { PATH: process.env['PATH'], LC_ALL: first.env.LC_ALL, GITHUB_OUTPUT: output, ...given, ...env },
      encoding: 'utf8',
    })
    return { status, stdout, paths: readFileSync(output, 'utf8').split('\n').slice(1, -2) }
  }

  const accepted: Record<string, [Record<string, string>, string[]]> = {
    'an empty list': [{ HOSTS: ' [ ]\n' }, ['hosts/app-1.yaml']],
    'a list on several lines': [
      { HOSTS: '[\n  "app-2",\r\n\t"App_3.example"\n]\n' },
      ['hosts/app-1.yaml', 'hosts/app-2.yaml', 'hosts/App_3.example.yaml'],
    ],
    'one host config for all': [{ HOSTS: '["app-2"]', HOST_CONFIG: 'host.yaml' }, ['host.yaml', 'host.yaml']],
    'no host config': [{ HOSTS: '["app-2"]', HOST_CONFIG: '' }, ['', '']],
  }
  for (const [name, [env, paths]] of Object.entries(accepted))
    it(`accepts ${name}`, t => assert.deepEqual(check(t, env), { status: 0, stdout: '', paths }))

  it('accepts 256 hosts', t => assert.equal(check(t, { HOSTS: names(256) }).paths.length, 257))

  const refused: Record<string, [Record<string, string>, string, string?]> = {
    'no list': [{ HOSTS: '' }, 'nothing'],
    'names without brackets': [{ HOSTS: 'app-2, app-3' }, 'app-2, app-3'],
    'one name': [{ HOSTS: '"app-2"' }, '"app-2"'],
    'single quotes': [{ HOSTS: "['app-2']" }, "['app-2']"],
    'a list without commas': [{ HOSTS: '["app-2" "app-3"]' }, '["app-2" "app-3"]'],
    'a comma too many': [{ HOSTS: '["app-2",]' }, '["app-2",]'],
    'something after the list': [{ HOSTS: '["app-2"] ]' }, '["app-2"] ]'],
    'an object': [{ HOSTS: '{"app-2": 1}' }, '{"app-2": 1}'],
    numbers: [{ HOSTS: '[2]' }, '[2]'],
    'a list in a list': [{ HOSTS: '[["app-2"]]' }, '[["app-2"]]'],
    'an empty name': [{ HOSTS: '[""]' }, '[""]'],
    'a name with a space': [{ HOSTS: '["app 2"]' }, '["app 2"]'],
    'a name that leads elsewhere': [{ HOSTS: '["../app-2"]' }, '["../app-2"]'],
    'the same name twice': [{ HOSTS: '["app-2", "app-3", "App-2"]' }, 'App-2 twice'],
    'the canary': [{ HOSTS: '["app-2", "APP-1"]' }, 'the canary APP-1'],
    'more hosts than a matrix has legs': [{ HOSTS: names(257) }, '257 names'],
    'a command of the runner': [{ HOSTS: '100%\r\n::stop-commands::x' }, '100%25%0D%0A::stop-commands::x'],
    'a canary with a comma': [{ CANARY: 'app-1,x' }, 'app-1,x', 'canary must be'],
    'no canary': [{ CANARY: '' }, 'nothing', 'canary must be'],
    'a negative soak': [{ SOAK_SECONDS: '-1' }, '-1', 'soak-seconds must be'],
    'no parallel deployment': [{ MAX_PARALLEL: '0' }, '0', 'max-parallel must be'],
  }
  for (const [name, [env, found, expected = LIST]] of Object.entries(refused))
    it(`refuses ${name}, in one sentence`, t => {
      const { status, stdout, paths } = check(t, env)
      assert.deepEqual([status, paths], [1, []])
      assert.ok(stdout.startsWith(`::error title=invalid_input::${expected}`), stdout)
      assert.ok(stdout.endsWith(`, but found ${found}.\n`), stdout)
    })

  it('gets every value through its environment', () => assert.doesNotMatch(first.run, /\$\{\{/))
})

/** The inputs of a deployment that the rollout itself decides. */
const CHOSEN = ['artifact-sha256', 'host-id', 'dry-run', 'check-only']
const SECRETS = new Map([
  ['api-key', 'HUB_API_KEY'],
  ['signing-secret', 'SIGNING_SECRET'],
  ['plugin-secret-key', 'PLUGIN_SECRET_KEY'],
  ['settings', 'SETTINGS'],
])
/** The gate checks all host configs, and a check asks for the version that the gate found and redeploys nothing. */
const ELSEWHERE = ['gate host-config', 'health version', 'health redeploy']

describe('the file rollout.yml', () => {
  it('has every input of a deployment that it does not choose, with the same default', () => {
    const { inputs, secrets } = ROLLOUT.on.workflow_call
    const { inputs: declared } = parse(read('action.yml'))
    for (const name of Object.keys(declared).filter(name => !CHOSEN.includes(name))) {
      const { required = false, default: fallback = '' } = declared[name]
      const secret = SECRETS.get(name)
      const { description: _, ...own } = secret === undefined ? (inputs[name] ?? {}) : secrets[secret]
      const value = required ? { required } : { default: fallback }
      assert.deepEqual(own, secret === undefined ? { type: 'string', ...value } : { required }, name)
    }
  })

  it('passes each of its inputs and secrets to every step whose action has it', () => {
    const jobs = Object.entries<{ steps: { uses?: string; with?: Record<string, unknown> }[] }>(ROLLOUT.jobs)
    const steps = jobs.flatMap(([job, { steps }]) => steps.map(step => ({ job, ...step })))
    const missing = steps.flatMap(({ job, uses = '', with: given = {} }) => {
      const [, folder = '.'] = /^OWNER\/hub-deploy(?:\/([a-z]+))?@/.exec(uses) ?? [undefined, undefined]
      if (!uses.startsWith('OWNER/')) return []
      return Object.keys(parse(read(`${folder}/action.yml`)).inputs).flatMap(name => {
        const source = SECRETS.has(name) ? `secrets.${SECRETS.get(name)}` : `inputs.${name}`
        const isOwn = SECRETS.has(name) || name in ROLLOUT.on.workflow_call.inputs
        const isPassed = new RegExp(`\\b${source}(?![\\w-])`).test(String(given[name]))
        return isOwn && !isPassed ? [`${job} ${name}`] : []
      })
    })
    assert.deepEqual(missing, ELSEWHERE)
  })

  it('asks only for permission to read the repository', () => {
    assert.deepEqual(ROLLOUT.permissions, { contents: 'read' })
    for (const job of Object.values<object>(ROLLOUT.jobs)) assert.ok(!('permissions' in job))
  })

  it('lets only one rollout of a plugin or service run at a time, and does not cancel a running one', () => {
    const { group, 'cancel-in-progress': cancels } = ROLLOUT.concurrency
    assert.match(group, /^[a-z-]+\$\{\{ inputs\.kind \}\}-\$\{\{ inputs\.slug \}\}$/)
    assert.equal(cancels, false)
  })

  it('describes every input and secret, and gives every input a type', () => {
    const { inputs, secrets, outputs } = ROLLOUT.on.workflow_call
    for (const [name, { type, description }] of Object.entries<Record<string, string>>(inputs)) {
      assert.ok(['string', 'number', 'boolean'].includes(type ?? '') && description, name)
    }
    for (const [name, { description }] of Object.entries<Record<string, string>>({ ...secrets, ...outputs })) {
      assert.ok(description, name)
    }
  })

  it('is called in docs/fleets.md as in the examples', () => {
    const [, shown = ''] = /^```yaml\n([\s\S]*?)^```$/m.exec(read('docs/fleets.md')) ?? []
    assert.ok(shown.includes('rollout.yml') && CALLER.endsWith(shown))
  })

  it('checks the canary after the soak without a deployment', () => {
    const [check = {}] = ROLLOUT.jobs.health.steps.filter(({ id }: { id?: string }) => id === 'check')
    assert.equal(check.with['check-only'], true)
  })

  it('rolls the canary back with the plan of the rollout', () => {
    const steps = Object.values<{ steps: { uses?: string; with?: object }[] }>(ROLLOUT.jobs).flatMap(job => job.steps)
    const [rollback = {}] = steps.flatMap(({ uses, with: inputs }) =>
      uses?.includes('/rollback@') ? [{ ...inputs }] : [],
    )
    // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of the workflow
    assert.equal(Object.entries(rollback).find(([name]) => name === 'install-plan')?.[1], '${{ inputs.install-plan }}')
  })

  it('pins every action from another repository to a commit', () => {
    const jobs = Object.values<{ steps: { uses?: string }[] }>(ROLLOUT.jobs)
    const used = jobs.flatMap(job => job.steps).flatMap(({ uses }) => uses ?? [])
    for (const uses of used) assert.match(uses, /^OWNER\/hub-deploy(\/[a-z]+)?@v1$|@[0-9a-f]{40}$/)
  })
})

/** A fleet in which every host runs 1.0.0. */
async function openOldFleet(t: TestContext): Promise<FleetStage> {
  const fleet = await openFleetStage()
  t.after(() => fleet.close())
  await fleet.release('1.0.0')
  await fleet.install('1.0.0')
  return fleet
}

interface Rollout {
  caller?: string
  version?: string
  secrets?: Record<string, string>
}

async function rollOut(
  fleet: FleetStage,
  { caller = CALLER, version = 'latest', ...run }: Rollout = {},
): Promise<WorkflowResult> {
  const result = await fleet.run(caller, { payload: { inputs: { version } }, ...run })
  fleet.assertNoSecret(result)
  return result
}

function callerWith(hosts: string): string {
  return CALLER.replace(/hosts: '.*'/, `hosts: '${hosts}'`)
}

/** Asserts that the fleet check says this, and does not advise to deploy the version again. */
function assertStopped(result: WorkflowResult, sentence: string): void {
  const steps = result.jobs.filter(({ id }) => id === 'fleet').flatMap(({ steps }) => steps)
  const summary = steps.map(step => step.summary ?? '').join('')
  assert.ok(summary.startsWith(`### ❌ ${sentence}\n`), summary)
  assert.ok(result.log.includes(`::warning::${sentence}.`), result.log)
  assert.match(summary, /Correct the cause on app-\d before you deploy 2\.0\.0 again\./)
  assert.doesNotMatch(summary, /Deploy to/)
}

/** The hub's routes with TLS, under a certificate of an authority that no machine knows. */
async function openPrivateHub(t: TestContext, { hub }: FleetStage): Promise<{ url: string; cert: string }> {
  const certificate = makeCertificate()
  assert.ok(certificate)
  const { url } = await serveTls(t, certificate, (request, response) => {
    const { method = 'GET', headers, url: path = '/' } = request
    const asked = http.request(`${hub.url}${path}`, { method, headers }, answer => {
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(response)
    })
    request.pipe(asked)
  })
  return { url, cert: certificate.cert }
}

/** The hosts' files and the hub's reports about them. */
async function everythingIn(fleet: FleetStage): Promise<unknown> {
  return { canary: fleet.files('app-1'), other: fleet.files('app-2'), hosts: await fleet.hosts() }
}

/** A health check that cancels its own deployment once and waits until the deployment has ended. */
function cancelOnce({ folder }: FleetStage, cancel: string): string {
  const done = join(folder, 'cancelled')
  return `[ -e ${done} ] || { touch ${done}; ${cancel}; while kill -0 $PPID; do sleep 0.1; done; }`
}

/** Calls `act` during each health check of the canary, counted from 0, before the check passes. */
async function onCheckOfCanary(t: TestContext, fleet: FleetStage, act: (nth: number) => Promise<void>): Promise<void> {
  let checks = 0
  const { url } = await serve(t, async (_, response) => {
    await act(checks++)
    response.end()
  })
  fleet.checkHealth('app-1', new URL(url))
}

function read(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8')
}
