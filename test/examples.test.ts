import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parse } from 'yaml'
import { createProjectKey } from '../hub/project/keys.ts'
import { sealProject } from '../hub/project/seal.ts'
import { runAction } from '../local/runner.ts'
import { parsePluginYaml } from '../src/core/content/plugin-yaml.ts'
import { parseSignerKeys } from '../src/core/trust/signature.ts'
import { blocksOf } from './doc-pages.ts'
import { openProjectStage, type ProjectStage } from './e2e/harness/project-stage.ts'
import { openStage, pluginFiles, SIGNING_SECRET, type Stage } from './e2e/harness/stage.ts'
import { sampled, whyLeftToCi } from './extent.ts'
import { makeStandIns } from './install/services/stand-ins.ts'

const ONLY_IN_CI = whyLeftToCi()

const ROOT = join(import.meta.dirname, '..')
const EXAMPLES = join(ROOT, 'examples')
/** The id of the project in the examples, in the form that every client of the contract accepts. */
const EXAMPLE_ID = 'prj_ShopExample01'
const DEPLOY = { uses: 'OWNER/hub-deploy@v1', definition: 'action.yml' }
const ROLLBACK = { uses: 'OWNER/hub-deploy/rollback@v1', definition: 'rollback/action.yml' }
const REMOVE = { uses: 'OWNER/hub-deploy/remove@v1', definition: 'remove/action.yml' }
const FLEET = { uses: 'OWNER/hub-deploy/fleet@v1', definition: 'fleet/action.yml' }
const STATUS = { uses: 'OWNER/hub-deploy/status@v1', definition: 'status/action.yml' }
const VERIFY = { uses: 'OWNER/hub-deploy/verify@v1', definition: 'verify/action.yml' }
const PROJECT = { uses: 'OWNER/hub-deploy/project@v1', definition: 'project/action.yml' }

/** The values that the tests use for the expressions in the examples. */
const EXPRESSIONS: Readonly<Record<string, string>> = {
  'inputs.version': '1.0.0',
  'matrix.host': 'app-2',
  'inputs.id': 'greeter',
  'needs.gate.outputs.version': '1.0.0',
}

interface Step {
  uses?: string
  with?: Record<string, unknown>
}

const WORKFLOWS = readdirSync(join(EXAMPLES, 'workflows')).map(name => ({
  name,
  text: read(`examples/workflows/${name}`),
}))
/** The workflows that use an action. */
const workflowsOf = ({ uses }: typeof DEPLOY) => WORKFLOWS.filter(({ text }) => text.includes(`uses: ${uses}`))

for (const { name, text } of WORKFLOWS) {
  describe(name, () => {
    it('passes actionlint', t => {
      const lint = spawnSync('actionlint', ['-ignore', 'label ".+" is unknown', '-'], { input: text, encoding: 'utf8' })
      if (lint.error !== undefined) return t.skip('actionlint is not on PATH')
      assert.equal(lint.status, 0, lint.stdout)
    })
  })
}

describe('the concurrency group of each job that deploys', () => {
  const groups = [...WORKFLOWS.map(({ text }) => text), ...shown('yaml', 'docs/fleets.md')].flatMap(text =>
    [...text.matchAll(/^ +group: (.*)$/gm)].map(([, group]) => group),
  )

  it('names the slug and the host, so that a deployment does not wait for the download of another slug', () => {
    assert.deepEqual([...new Set(groups)].toSorted(), [
      // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of the workflow
      'deploy-greeter-${{ matrix.host }}',
      'deploy-greeter-app-1',
      'deploy-shop-app-1',
    ])
    assert.equal(groups.length, 5)
  })
})

describe('the name of a host in reports', () => {
  const pages = ['README.md', 'project/README.md', 'remove/README.md', 'rollback/README.md', 'docs/fleets.md']
  const texts = [...WORKFLOWS.map(({ text }) => text), ...pages.flatMap(page => shown('yaml', page))]
  const steps = texts.flatMap(text => [
    ...text.matchAll(/uses: OWNER\/hub-deploy(?:\/(?:rollback|remove|project))?@v1.*\n(?: {8,}.*\n)+/g),
  ])

  it('is in every step that changes a host, because two names would make two hosts of it', () => {
    const nameless = steps.filter(([step]) => !/^ +(?:host-id: |dry-run: true)/m.test(step))
    assert.deepEqual(
      nameless.map(([step]) => step),
      [],
    )
    assert.ok(steps.length >= 9, String(steps.length))
  })
})

for (const { name, text } of sampled(workflowsOf(DEPLOY), 2)) {
  describe(name, () => {
    it('deploys with its own inputs', async () => {
      await withExamplePublished(async (stage, sha256) => {
        const values = { ...EXPRESSIONS, 'inputs.sha256': sha256, 'needs.gate.outputs.sha256': sha256 }
        const inputs = readInputs(text, DEPLOY, { ...values, ...secretsOf(stage) })
        // The stage replaces the workflow's hub and host. Everything else runs unchanged.
        const { outputs, log } = await stage.deploy({ ...inputs, 'hub-url': stage.hub.url, 'project-root': stage.root })
        assert.equal(outputs['outcome'], 'success', log)
        assert.equal(outputs['version'], '1.0.0')
        assert.equal(existsSync(join(stage.root, 'plugins/greeter/plugin.yaml')), inputs['dry-run'] !== 'true')
      })
    })
  })
}

for (const { name, text } of workflowsOf(PROJECT)) {
  describe(name, () => {
    it('deploys the project of the examples with its own inputs', async t => {
      const stage = await openProjectStage()
      t.after(() => stage.close())
      await stage.publish('1.0.0', sources('project'), { projectId: EXAMPLE_ID })
      const newKey = (purpose: 'devkey' | 'credential') =>
        createProjectKey(stage.store, { project_id: EXAMPLE_ID, purpose, name: 'test' }).value
      const keys = { devkey: newKey('devkey'), credential: newKey('credential') }
      const inputs = readInputs(text, PROJECT, { ...EXPRESSIONS, ...projectSecretsOf(keys) })
      assert.equal(inputs['project-id'], EXAMPLE_ID)
      // The stage replaces the workflow's hub, host and publisher.
      const own = { 'hub-url': stage.hub.url, 'project-root': stage.root, 'signer-public-key': stage.signerPublicKey }
      const { outputs, log } = await stage.deploy({ ...inputs, ...own })
      assert.equal(outputs['outcome'], 'success', log)
      for (const path of ['plugins/cart/plugin.yaml', 'plugins/till/plugin.yaml', 'extensions/mailer/run.sh']) {
        assert.ok(existsSync(join(stage.root, path)), path)
      }
    })

    it('pins a valid key', () => {
      const inputs = readInputs(text, PROJECT, { ...EXPRESSIONS, ...projectSecretsOf({ devkey: '', credential: '' }) })
      assert.equal(parseSignerKeys(inputs['signer-public-key'] ?? '').length, 1)
    })
  })
}

for (const { name, text } of workflowsOf(ROLLBACK)) {
  describe(name, () => {
    it('restores the named version with its own inputs', async () => {
      await withExamplePublished(async stage => {
        for (const version of ['1.0.0', '2.0.0']) {
          if (version !== '1.0.0') await stage.publish(version, pluginFiles(version))
          const { exitCode, log } = await stage.deploy({ version })
          assert.equal(exitCode, 0, log)
        }
        const host = join(stage.workspace.path, 'deploy/host-config.yaml')
        mkdirSync(dirname(host), { recursive: true })
        writeFileSync(host, 'version: 1\nsupervisor: none\n')
        const inputs = readInputs(text, ROLLBACK, { ...EXPRESSIONS, ...secretsOf(stage) })
        // The stage replaces the workflow's hub and host. Everything else runs unchanged.
        const own = { 'hub-url': stage.hub.url, 'project-root': stage.root }
        const action = { action: 'rollback', workspace: stage.workspace, inputs: { ...inputs, ...own } }
        const { outputs, log } = await runAction(action)
        assert.deepEqual(
          [outputs['outcome'], outputs['version'], outputs['reported']],
          ['success', '1.0.0', 'true'],
          log,
        )
      })
    })
  })
}

for (const { name, text } of workflowsOf(REMOVE)) {
  describe(name, () => {
    it('removes the plugin with its own inputs', async () => {
      await withExamplePublished(async stage => {
        const { exitCode, log } = await stage.deploy()
        assert.equal(exitCode, 0, log)
        const host = join(stage.workspace.path, 'deploy/host-config.yaml')
        mkdirSync(dirname(host), { recursive: true })
        writeFileSync(host, 'version: 1\nsupervisor: none\n')
        const inputs = { ...readInputs(text, REMOVE, EXPRESSIONS), 'project-root': stage.root }
        const { outputs } = await runAction({ action: 'remove', workspace: stage.workspace, inputs })
        assert.deepEqual([outputs['outcome'], outputs['changed']], ['success', 'true'])
        assert.equal(existsSync(join(stage.root, 'plugins/greeter')), false)
      })
    })
  })
}

for (const { name, text } of workflowsOf(FLEET).filter(workflow => workflow.name === 'fleet-check.yml')) {
  describe(name, () => {
    it('passes once each of its hosts has reported the version, and fails before that', async () => {
      await withExamplePublished(async stage => {
        const inputs = readInputs(text, FLEET, { ...EXPRESSIONS, ...secretsOf(stage) })
        const own = { 'hub-url': stage.hub.url, 'wait-seconds': '0' }
        const run = { action: 'fleet', workspace: stage.workspace, inputs: { ...inputs, ...own } }
        assert.equal((await runAction(run)).outputs['error-code'], 'fleet_out_of_sync')
        for (const host of ['app-1', 'app-2', 'app-3'])
          await stage.deploy({ 'install-plan': 'deploy/install.yaml', 'host-id': host })
        assert.equal((await runAction(run)).outputs['in-sync'], 'true')
      })
    })
  })
}

for (const { name, text } of workflowsOf(STATUS)) {
  describe(name, () => {
    it('passes on an unchanged host, and fails on a host whose files were changed', async () => {
      await withExamplePublished(async stage => {
        await stage.deploy({ 'install-plan': 'deploy/install.yaml' })
        const inputs = { ...readInputs(text, STATUS, EXPRESSIONS), 'project-root': stage.root }
        const run = { action: 'status', workspace: stage.workspace, inputs }
        assert.equal((await runAction(run)).outputs['error-code'], '')
        writeFileSync(join(stage.root, 'plugins/greeter/src/main.py'), 'by hand')
        assert.equal((await runAction(run)).outputs['error-code'], 'drift_found')
      })
    })
  })
}

for (const { name, text } of sampled(
  workflowsOf(VERIFY).filter(({ name }) => name !== 'release.yml'),
  1,
)) {
  describe(name, () => {
    it('checks with its own inputs, and fails for a plan of another plugin', async () => {
      await withExamplePublished(async stage => {
        writeFileSync(join(stage.workspace.path, 'deploy/host-config.yaml'), 'version: 1\nsupervisor: none\n')
        const inputs = readInputs(text, VERIFY, { ...EXPRESSIONS, ...secretsOf(stage) })
        const own = 'hub-url' in inputs ? { 'hub-url': stage.hub.url } : {}
        const run = { action: 'verify', workspace: stage.workspace, inputs: { ...inputs, ...own } }
        const { outputs, log } = await runAction(run)
        assert.equal(outputs['error-code'], '', log)
        assert.equal(outputs['verified'], 'hub-url' in inputs ? 'true' : '')
        assert.equal((await runAction({ ...run, inputs: { ...run.inputs, slug: 'clock' } })).exitCode, 1)
      })
    })
  })
}

describe('the example plans', () => {
  it('deploy the service of the examples', async () => {
    await withExamplePublished(async stage => {
      await stage.publish('1.0.0', sources('service'), { kind: 'service', slug: 'clock' })
      stage.writePlan(read('examples/install-service.yaml'))
      const { outputs, log } = await stage.deploy({ kind: 'service', slug: 'clock' })
      assert.equal(outputs['outcome'], 'success', log)
    })
  })

  it('create the settings of a plugin that requires some', { skip: ONLY_IN_CI }, async () => {
    await withExamplePublished(async stage => {
      const plan = read('examples/install-with-settings.yaml')
      await stage.publish('2.0.0', { ...sources('plugin'), ...filesShownIn(plan) })
      stage.writePlan(plan)
      const { outputs, log } = await stage.deploy({ settings: 'GREETER_TOKEN=from the input' })
      assert.equal(outputs['outcome'], 'success', log)
      const settings = readFileSync(join(stage.root, 'plugins/greeter.env'), 'utf8')
      assert.equal(settings, "GREETER_LANGUAGE=en\nGREETER_TOKEN='from the input'\n")
    })
  })

  it('run with the host config of the examples', async t => {
    await withExamplePublished(async stage => {
      const standIns = makeStandIns()
      t.after(() => standIns.close())
      for (const name of ['make-db', 'notify-team']) standIns.add(name, '')
      const url = await serveHealth(t, '{"version":"1.0.0"}')
      const config = read('examples/host-config.yaml')
        .replaceAll('/usr/local/bin/', `${standIns.bin}/`)
        .replace('http://127.0.0.1:8080/health', url)
      writeFileSync(join(stage.workspace.path, 'host-config.yaml'), config)
      stage.writePlan(read('examples/install-and-restart.yaml'))
      const run = { env: { PATH: standIns.path } }
      const { outputs, log } = await stage.deploy({ 'host-config': 'host-config.yaml' }, run)
      assert.equal(outputs['outcome'], 'success', log)
      assert.deepEqual(standIns.changes(), [
        ['make-db', '--fast', 'greeter'],
        ['systemctl', 'restart', 'greeter.service'],
        ['notify-team'],
      ])
    })
  })

  it('are shown in the pages, along with the host config and the first workflow', () => {
    assert.ok(shown('yaml', 'README.md').includes(read('examples/workflows/deploy.yml')))
    assert.ok(shown('yaml', 'docs/plan.md').includes(read('examples/install-and-restart.yaml')))
    assert.ok(shown('yaml', 'docs/host-config.md').includes(read('examples/host-config.yaml')))
  })
})

describe('the pages about projects', () => {
  it('show the workflow and the plan of the examples', () => {
    assert.ok(shown('yaml', 'docs/projects.md').includes(read('examples/project/deployment/install.yaml')))
    assert.ok(shown('yaml', 'project/README.md').includes(read('examples/workflows/deploy-project.yml')))
  })

  it('show the manifest that sealing the example creates', async () => {
    const printed = JSON.parse(shown('json', 'docs/projects.md')[0] ?? '')
    const { manifest } = await sealProject({
      source: join(EXAMPLES, 'project'),
      projectId: EXAMPLE_ID,
      version: '1.0.0',
      signingKey: generateKeyPairSync('ed25519').privateKey,
      builtAt: new Date(printed.built_at),
    })
    assert.deepEqual(printed, manifest)
  })
})

/** Starts a service that answers every request with this body, and returns its URL. */
async function serveHealth(t: TestContext, answer: string): Promise<string> {
  const server = createServer((_, response) => response.end(answer))
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.after(() => void server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/health`
}

/** The files that the comment in the plan shows: a line of the plugin.yaml, then the template. */
function filesShownIn(plan: string): Record<string, string> {
  const [requirement, ...template] = [...plan.matchAll(/^# {3}(.*)$/gm)].map(([, line]) => line)
  return {
    'plugin.yaml': `name: greeter\nversion: "2.0.0"\n${requirement}\n`,
    '.env.template': `${template.join('\n')}\n`,
  }
}

/** Opens a stage whose hub serves the example's plugin, and whose repository contains the example's plan. */
async function withExamplePublished(act: (stage: Stage, sha256: string) => Promise<void>): Promise<void> {
  const stage = await openStage()
  try {
    await stage.publish('1.0.0', sources('plugin'))
    const plan = join(stage.workspace.path, 'deploy/install.yaml')
    mkdirSync(dirname(plan))
    writeFileSync(plan, read('examples/install.yaml'))
    const record = await (await fetch(`${stage.hub.url}/plugins/greeter`)).json()
    await act(stage, (record as { versions: { sha256: string }[] }).versions[0]?.sha256 ?? '')
  } finally {
    await stage.close()
  }
}

/** The `with:` of the one step that uses the action, as the runner passes it to the action. */
function readInputs(
  workflow: string,
  { uses, definition }: typeof DEPLOY,
  values: Readonly<Record<string, string>>,
): Record<string, string> {
  const jobs: { steps: Step[] }[] = Object.values(parse(workflow).jobs)
  const steps = jobs.flatMap(job => job.steps).filter(step => step.uses === uses)
  assert.equal(steps.length, 1)
  const given = Object.entries(steps[0]?.with ?? {})
  const known = Object.keys(parse(read(definition)).inputs)
  assert.deepEqual(
    given.map(([name]) => name).filter(name => !known.includes(name)),
    [],
  )
  return Object.fromEntries(given.map(([name, value]) => [name, evaluate(String(value), values)]))
}

function evaluate(text: string, values: Readonly<Record<string, string>>): string {
  return text.replace(/\$\{\{ (.+?) \}\}/g, (_, expression) => {
    const value = values[expression]
    assert.ok(value !== undefined, `The test knows no value for ${expression}`)
    return value
  })
}

function secretsOf(stage: Stage): Record<string, string> {
  return { 'secrets.HUB_API_KEY': stage.apiKey, 'secrets.GREETER_SIGNING_SECRET': SIGNING_SECRET }
}

function projectSecretsOf({ devkey, credential }: Pick<ProjectStage, 'devkey' | 'credential'>): Record<string, string> {
  return { 'secrets.HUB_DEVKEY': devkey, 'secrets.SHOP_DEPLOYMENT_CREDENTIAL': credential }
}

function sources(example: 'plugin' | 'service' | 'project'): Record<string, string> {
  const folder = join(EXAMPLES, example)
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
  const paths = files.map(file => join(file.parentPath, file.name))
  return Object.fromEntries(paths.map(path => [path.slice(folder.length + 1), readFileSync(path, 'utf8')]))
}

/** The blocks of a language in a page, in order. */
function shown(language: string, page: string): string[] {
  return blocksOf(page)
    .filter(block => block.language === language)
    .map(({ text }) => text)
}

function read(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8')
}

const PLUGIN = join(import.meta.dirname, '../examples/plugin')
/** Loads an entry point by its path, as a host framework does, and handles one event. */
const HOST = `
import asyncio, importlib.util, sys
spec = importlib.util.spec_from_file_location("plugins.greeter", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(asyncio.run(module.Plugin().handle("greet", {"name": "Ada"}))["text"])
`

describe('the example plugin', () => {
  it('is trusted, and a host that loads its entry point finds its class Plugin', t => {
    const { executionMode, entryPoint } = parsePluginYaml(readFileSync(join(PLUGIN, 'plugin.yaml'), 'utf8'))
    assert.equal(executionMode, 'trusted')
    const args = ['-I', '-B', '-c', HOST, join(PLUGIN, entryPoint ?? '')]
    const host = spawnSync('python3', args, { encoding: 'utf8', cwd: '/' })
    if (host.error !== undefined) return t.skip('python3 is not on PATH')
    assert.deepEqual([host.status, host.stdout, host.stderr], [0, 'Hello, Ada!\n', ''])
  })
})
