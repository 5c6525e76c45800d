import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, it } from 'node:test'
import { type ActionResult, runAction } from '../../../local/runner.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { openProjectStage, PROJECT_PLAN, type ProjectStage, projectFiles } from '../harness/project-stage.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage, writeFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const LOADER = join(import.meta.dirname, '../harness/framework.py')
const needsPython = spawnSync('python3', ['-c', 'import yaml']).status !== 0 && 'needs python3 with PyYAML'

const PLAN = `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/etc/env, depends_on: [files]}\n`
const HOST_SECRET = 'the secret of the host framework'
const MAIN = 'import os\nprint(VERSION, os.environ.get("COLOUR"))\n'

let open: Stage | ProjectStage | undefined
afterEach(async () => {
  await open?.close()
  open = undefined
})

async function openHost(): Promise<Stage> {
  const stage = await openStage()
  open = stage
  stage.writePlan(PLAN)
  return stage
}

/** The files of a version that prints itself and its setting. */
function greeter(version: string, yaml = ''): Record<string, string> {
  return pluginFiles(version, {
    'plugin.yaml': `name: greeter\nversion: "${version}"\n${yaml}`,
    'etc/env': 'COLOUR=blue\n',
    'src/main.py': MAIN.replace('VERSION', JSON.stringify(version)),
  })
}

interface Loaded {
  /** What each plugin printed, by name. */
  readonly loaded: Readonly<Record<string, string>>
  /** Why a directory was skipped, by its name. */
  readonly skipped: Readonly<Record<string, string>>
}

/** Loads the plugins as a host framework of version 2.0 does. */
function load(root: string): Loaded {
  const { stdout, stderr } = spawnSync('python3', [LOADER, root, '2.0', HOST_SECRET], { encoding: 'utf8' })
  assert.notEqual(stdout, '', stderr)
  return JSON.parse(stdout)
}

function assertLoaded({ root }: { readonly root: string }, printed: string): void {
  assert.deepEqual(load(root), { loaded: { greeter: printed }, skipped: {} })
}

function assertSuccess(result: ActionResult): ActionResult {
  assert.equal(result.exitCode, 0, result.log)
  return result
}

async function deploy(stage: Stage, version: string, yaml = ''): Promise<ActionResult> {
  await stage.publish(version, greeter(version, yaml))
  return assertSuccess(await stage.deploy({ 'plugin-secret-key': HOST_SECRET }))
}

function warningsIn({ log }: ActionResult): string {
  return log.match(/^::(?:warning|notice).*may not load.*$/gm)?.join('\n') ?? ''
}

describe('a host framework', { skip: needsPython }, () => {
  const directories: Record<string, (root: string) => Record<string, string>> = {
    'no file of its own': () => ({}),
    'integration.yaml': () => ({ 'integration.yaml': 'plugins: {directory: ./app}\n' }),
    'integration.json': () => ({ 'integration.json': '{"plugins": {"directory": "app"}}' }),
    'config/integration.yaml': () => ({ 'config/integration.yaml': 'plugins: {directory: app}\n' }),
    'config/integration.json': () => ({ 'config/integration.json': '{"plugins": {"directory": "./app/"}}' }),
    'an absolute directory': root => ({ 'integration.yaml': `plugins: {directory: ${root}/app}\n` }),
  }
  for (const [name, files] of sampled(Object.entries(directories), 2)) {
    it(`with ${name} loads what was deployed`, async () => {
      const stage = await openHost()
      writeFiles(stage.root, files(stage.root))
      await deploy(stage, '1.0.0')
      assertLoaded(stage, '1.0.0 blue')
    })
  }

  it('with an absolute directory outside the project root is refused before anything is fetched', async () => {
    const stage = await openHost()
    writeFiles(stage.root, { 'integration.yaml': 'plugins: {directory: /srv/plugins}\n' })
    await stage.publish('1.0.0', greeter('1.0.0'))
    const result = await stage.deploy()
    assert.deepEqual([result.exitCode, result.outputs['error-code']], [1, 'invalid_input'], result.log)
    assert.match(result.log, /loads plugins from "\/srv\/plugins", which is outside project-root\. Nothing was changed/)
    assert.ok(!existsSync(join(stage.root, 'srv')) && !existsSync(join(stage.root, 'plugins')))
  })

  const modes = ['legacy', 'trusted', 'Ephemeral', 'sandboxed']
  const injections = {
    '{inject: true}': '.env',
    '{inject: "true", env_file: settings.env}': 'settings.env',
    '{inject: 1, env_file: ./etc/app/settings.env}': 'etc/app/settings.env',
  }
  for (const [index, mode] of sampled([...modes.entries()], 2)) {
    const [written, envFile] = Object.entries(injections)[index % 3] as [string, string]
    it(`loads a ${mode} plugin with ${written} after install, update, repair and rollback`, async () => {
      const stage = await openHost()
      const yaml = `execution_mode: ${mode}\nenvconfiguration: ${written}\n`
      const settings = join(stage.root, 'plugins/greeter', envFile)
      await deploy(stage, '1.0.0', yaml)
      assertLoaded(stage, '1.0.0 blue')
      writeFileSync(settings, 'COLOUR=red\n')
      rmSync(join(stage.root, 'plugins/greeter.env'))

      assert.doesNotMatch((await deploy(stage, '2.0.0', yaml)).log, /differ from what was installed/)
      assert.equal(load(stage.root).loaded['greeter']?.split(' ')[0], '2.0.0')
      assert.equal(readFileSync(settings, 'utf8'), 'COLOUR=red\n')
      assert.equal((await stage.deploy({ 'plugin-secret-key': HOST_SECRET })).outputs['changed'], 'false')
      const status = await runAction({
        action: 'status',
        workspace: stage.workspace,
        inputs: { 'project-root': stage.root },
      })
      assert.equal(status.outputs['drift'], 'false', status.log)

      writeFileSync(join(stage.root, 'plugins/greeter/src/main.py'), 'raise Exception\n')
      assertSuccess(await stage.deploy({ 'plugin-secret-key': HOST_SECRET }))
      assert.equal(load(stage.root).loaded['greeter']?.split(' ')[0], '2.0.0')
      assert.equal(readFileSync(settings, 'utf8'), 'COLOUR=red\n')

      const inputs = { kind: 'plugin', id: 'greeter', 'project-root': stage.root }
      assertSuccess(await runAction({ action: 'rollback', workspace: stage.workspace, inputs }))
      assert.equal(load(stage.root).loaded['greeter']?.split(' ')[0], '1.0.0')
      assert.equal(readFileSync(settings, 'utf8'), 'COLOUR=red\n')
    })
  }

  it('finds the settings that it injects after a run that failed', async () => {
    const stage = await openHost()
    const yaml = 'envconfiguration: {inject: true, env_file: settings.env}\n'
    await deploy(stage, '1.0.0', yaml)
    writeFileSync(join(stage.root, 'plugins/greeter/settings.env'), 'COLOUR=red\n')
    rmSync(join(stage.root, 'plugins/greeter.env'))
    await stage.publish('2.0.0', greeter('2.0.0', `${yaml}environment: {required: [TOKEN]}\n`))
    const result = await stage.deploy()
    assert.equal(result.outputs['outcome'], 'rolled_back', result.log)
    assertLoaded(stage, '1.0.0 red')
  })

  it('gets new settings for a version that is already installed, and a dry run lists them', {
    skip: ONLY_IN_CI,
  }, async () => {
    const stage = await openHost()
    const yaml = 'envconfiguration: {inject: yes, env_file: etc/app/settings.env}\n'
    await deploy(stage, '1.0.0', yaml)
    rmSync(join(stage.root, 'plugins/greeter/etc/app'), { recursive: true })
    const { log } = assertSuccess(await stage.deploy({ 'dry-run': 'true' }))
    assert.match(log, /^added +plugins\/greeter\/etc\/app\/settings\.env \(from its template\)$/m)
    assert.equal(assertSuccess(await stage.deploy()).outputs['changed'], 'true')
    assertLoaded(stage, '1.0.0 blue')
    assert.equal((await stage.deploy()).outputs['changed'], 'false')
  })

  it('skips a plugin whose settings no step writes, and a warning names the file', async () => {
    const stage = await openHost()
    stage.writePlan(PLUGIN_PLAN)
    const { log } = await deploy(stage, '1.0.0', 'envconfiguration: {inject: "true", env_file: settings.env}\n')
    assert.match(log, /::warning.*plugins\/greeter gets its settings from .*greeter\/settings\.env only/)
    assert.deepEqual(load(stage.root).skipped, { greeter: 'no settings.env' })
    writeFiles(stage.root, { 'plugins/greeter/settings.env': 'COLOUR=mine\n' })
    await deploy(stage, '2.0.0', 'envconfiguration: {inject: "true", env_file: settings.env}\n')
    assertLoaded(stage, '2.0.0 mine')
  })

  it('keeps the settings that an earlier version got, in the snapshot, for a rollback', async () => {
    const stage = await openHost()
    await deploy(stage, '1.0.0', 'envconfiguration: {inject: true, env_file: settings.env}\n')
    writeFileSync(join(stage.root, 'plugins/greeter/settings.env'), 'COLOUR=red\n')
    await deploy(stage, '2.0.0')
    const inputs = { kind: 'plugin', id: 'greeter', 'project-root': stage.root }
    assertSuccess(await runAction({ action: 'rollback', workspace: stage.workspace, inputs }))
    assert.equal(readFileSync(join(stage.root, 'plugins/greeter/settings.env'), 'utf8'), 'COLOUR=red\n')
    assert.equal(load(stage.root).loaded['greeter']?.split(' ')[0], '1.0.0')
  })

  it('never keeps what a plugin.yaml that was changed on the host names', async () => {
    const stage = await openHost()
    await deploy(stage, '1.0.0')
    writeFiles(stage.root, {
      'plugins/greeter/plugin.yaml':
        'name: greeter\nversion: "1.0.0"\nentry_point: x/y\nenvconfiguration: {inject: true, env_file: src}\n',
      'plugins/greeter/src/main.py': 'print("planted")\n',
    })
    await deploy(stage, '2.0.0')
    assertLoaded(stage, '2.0.0 blue')
  })

  const needs: Record<string, [yaml: string, skipped: string, fix: Record<string, string>]> = {
    'another plugin': [
      'requires: [{name: Billing, version: ">=2.0"}]\n',
      'requires',
      { 'plugins/billing/plugin.yaml': 'name: Billing\nversion: "2.1"\n', 'plugins/billing/src/main.py': '' },
    ],
    'a variable': [`env: {KEY: "\${API_KEY}"}\n`, 'no variable API_KEY', { '.env': 'API_KEY=1\n' }],
  }
  for (const [name, [yaml, skipped, fix]] of sampled(Object.entries(needs), 1)) {
    it(`skips a plugin that lacks ${name}, as a dry run and a run have warned`, async () => {
      const stage = await openHost()
      await stage.publish('1.0.0', greeter('1.0.0', yaml))
      assert.match(warningsIn(await stage.deploy({ 'dry-run': 'true' })), /may not load plugins\/greeter: it/)
      assert.match(warningsIn(assertSuccess(await stage.deploy())), /may not load plugins\/greeter: it/)
      assert.deepEqual(load(stage.root), { loaded: {}, skipped: { greeter: skipped } })
      writeFiles(stage.root, fix)
      assert.equal(warningsIn(assertSuccess(await stage.deploy())), '')
      assert.equal(load(stage.root).loaded['greeter'], '1.0.0 blue')
    })
  }

  it('skips a plugin for another version of the framework, as a warning has said', async () => {
    const stage = await openHost()
    const hostConfig = join(stage.workspace.path, 'host.yaml')
    writeFileSync(hostConfig, 'version: 1\nframework: {version: "2.0"}\n')
    chmodSync(hostConfig, 0o600)
    for (const [version, condition, isLoaded] of [
      ['1.0.0', '>=2.0,<3.0', true],
      ['2.0.0', '2.0.0', true],
      ['3.0.0', '>=2.1', false],
      ['4.0.0', '1.9', false],
    ] as const) {
      await stage.publish(version, greeter(version, `framework_version: "${condition}"\n`))
      const result = assertSuccess(await stage.deploy({ 'host-config': hostConfig }))
      assert.equal(warningsIn(result) === '', isLoaded, result.log)
      assert.equal(load(stage.root).loaded['greeter'], isLoaded ? `${version} blue` : undefined)
    }
    assert.match((await stage.deploy()).log, /::notice.*add framework: \{version: "\.\.\."\} there/)
  })

  it('loads the plugins of a project that require each other, each with its own settings', {
    skip: ONLY_IN_CI,
  }, async () => {
    const stage = await openProjectStage()
    open = stage
    const files = {
      'plugins/cart/plugin.yaml': 'name: Cart\nversion: "1.0.0"\nenvconfiguration: {inject: 1, env_file: cart.conf}\n',
      'plugins/cart/.env.template': 'COLOUR=green\n',
      'plugins/cart/src/main.py': MAIN.replace('VERSION', '"cart"'),
      'plugins/till/plugin.yaml': 'name: till\nversion: "7.0.0"\nrequires: [Cart]\n',
      // The settings of another plugin are an ordinary file here, which each version replaces.
      'deployment/install.yaml': `${PROJECT_PLAN}  - {id: env, action: write_env, plugin: cart, from: plugins/cart/.env.template, depends_on: [mailer]}\n`,
    }
    for (const version of ['1.0.0', '2.0.0']) {
      await stage.publish(version, projectFiles(version, { ...files, 'plugins/till/cart.conf': version }))
      assert.equal(warningsIn(assertSuccess(await stage.deploy())), '')
      assert.equal(readFileSync(join(stage.root, 'plugins/till/cart.conf'), 'utf8'), version)
      const loaded = { Cart: version === '1.0.0' ? 'cart green' : 'cart red', till: `till in ${version}` }
      assert.deepEqual(load(stage.root), { loaded, skipped: {} })
      writeFileSync(join(stage.root, 'plugins/cart/cart.conf'), 'COLOUR=red\n')
      writeFileSync(join(stage.root, 'plugins/cart.env'), '')
    }
  })
})
