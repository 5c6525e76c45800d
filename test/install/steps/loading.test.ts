import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import { parsePluginYaml } from '../../../src/core/content/plugin-yaml.ts'
import { parseHostConfig } from '../../../src/core/plan/host-config.ts'
import { parsePlan } from '../../../src/core/plan/plan.ts'
import { environmentOf } from '../../../src/install/steps/context.ts'
import { warnOfSkipped } from '../../../src/install/steps/loading.ts'
import { writeTree } from '../../folders.ts'
import { contextOf, deploymentOf, partOf } from '../prepared-deployment.ts'
import { collectLog, prepareTemporaryHost } from '../prepared-host.ts'

interface Scene {
  /** The plugin.yaml of the new `plugins/x`; undefined for a plugin without one. */
  readonly yaml: string | undefined
  /** Further files of the new tree. */
  readonly tree?: Readonly<Record<string, string>>
  /** Files below the project root. */
  readonly host?: Readonly<Record<string, string>>
  readonly framework?: string
  readonly settings?: Readonly<Record<string, string>>
  readonly writesSettings?: boolean
  readonly signal?: AbortSignal
}

const STEPS = `format_version: "1"
project_id: x
version: "1"
steps:
  - {id: a, action: install_plugin, plugin: x}
`
const WRITE = '  - {id: b, action: write_env, plugin: x, from: plugins/x/etc/env}\n'

async function linesOf(t: TestContext, scene: Scene): Promise<string[]> {
  const { yaml, tree = {}, host = {}, framework, settings = {}, writesSettings = false, signal } = scene
  const layout = await prepareTemporaryHost(t)
  const environment = environmentOf(yaml === undefined ? undefined : parsePluginYaml(yaml))
  const part = partOf(layout, { environment })
  const log = collectLog()
  const request = { settings: new Map(Object.entries(settings)) }
  const { steps } = parsePlan(`${STEPS}${writesSettings ? WRITE : ''}`, 'install.yaml')
  const hostConfig = framework === undefined ? undefined : parseHostConfig(`version: 1\n${framework}`, 'host.yaml')
  const deployment = deploymentOf(layout, { tools: { log, ...(signal && { signal }) }, request })
  const context = await contextOf(t, deployment, { parts: [part], steps, hostConfig })
  writeTree(part.staged, { ...tree, ...(yaml === undefined ? {} : { 'plugin.yaml': yaml }) })
  writeTree(layout.root, host)
  await warnOfSkipped(context)
  return log.lines
}

const VERSION_2 = 'framework: {version: "2.1"}\n'
const TOKEN = `env: {A: "\${TOKEN}"}\n`
const INJECTED = `${TOKEN}envconfiguration: {inject: true, env_file: app.env}\n`

describe('warnOfSkipped', () => {
  const loaded: Record<string, Scene> = {
    'without needs': { yaml: 'name: x\n', framework: VERSION_2 },
    'whose condition the framework meets': { yaml: 'framework_version: ">=2.0,<3"\n', framework: VERSION_2 },
    'that requires an installed plugin by its name': {
      yaml: 'requires: [billing, {name: Till, version: ">=2"}]\n',
      host: { 'plugins/billing/plugin.yaml': '{}\n', 'plugins/till/plugin.yaml': 'name: Till\nversion: "2.0.0"\n' },
    },
    'that requires a plugin whose version says nothing': {
      yaml: 'requires: [{name: billing, version: "^2"}]\n',
      host: { 'plugins/billing/plugin.yaml': 'version: beta\n' },
    },
    'whose variable the .env of the root sets': { yaml: TOKEN, host: { '.env': 'export TOKEN=\n' } },
    'whose variable its settings set': { yaml: TOKEN, host: { 'plugins/x.env': 'TOKEN=1\n' } },
    'whose variable its injected settings set': { yaml: INJECTED, host: { 'plugins/x/app.env': 'TOKEN=1\n' } },
    'whose variable the template sets': { yaml: TOKEN, tree: { 'etc/env': 'TOKEN=1\n' }, writesSettings: true },
    'whose variable the input settings adds': {
      yaml: `${TOKEN}environment: {required: [TOKEN]}\n`,
      tree: { 'etc/env': 'A=1\n' },
      settings: { TOKEN: '1' },
      writesSettings: true,
    },
    'whose settings cannot be read': { yaml: TOKEN, host: { 'plugins/x.env/file': '' } },
  }
  for (const [name, scene] of Object.entries(loaded))
    it(`says nothing of a plugin ${name}`, async t => assert.deepEqual(await linesOf(t, scene), []))

  const skipped: Record<string, [scene: Scene, reason: RegExp]> = {
    'for another version of the framework': [
      { yaml: 'framework_version: ">=3.0"\n', framework: VERSION_2 },
      /its framework_version is ">=3\.0", but the host config says that the framework is 2\.1\./,
    ],
    'with a condition that nothing meets': [
      { yaml: 'framework_version: "~=2.0"\n', framework: VERSION_2 },
      /"~=2\.0", which is not a condition such as ">=2\.0,<3\.0"\./,
    ],
    'that requires a plugin that is missing': [
      { yaml: 'requires: [billing, {name: Till, version: ">=2"}]\n', host: { 'plugins/_Till/plugin.yaml': '{}\n' } },
      /it requires billing, which is not in plugins; it requires Till >=2, which is not in plugins\./,
    ],
    'that requires another version of a plugin': [
      {
        yaml: 'requires: [{name: billing, version: ">=2.0"}]\n',
        host: { 'plugins/billing/plugin.yaml': 'name: billing\nversion: "1.9"\n' },
      },
      /it requires billing >=2\.0, but plugins has 1\.9\./,
    ],
    'whose variable nothing sets': [
      { yaml: TOKEN, host: { 'plugins/x/.env': 'TOKEN=1\n', 'plugins/x.env': 'TOKENS=1\n' }, settings: { TOKEN: '1' } },
      /takes TOKEN from the environment, but neither \.env nor plugins\/x\.env nor settings set it\./,
    ],
    'that has only a plugin.json': [
      { yaml: undefined, tree: { 'plugin.json': '{}' } },
      /it has a plugin\.json, but no plugin\.yaml\./,
    ],
  }
  for (const [name, [scene, reason]] of Object.entries(skipped))
    it(`warns, in one line, of a plugin ${name}`, async t => {
      const lines = await linesOf(t, scene)
      assert.match(lines.join('\n'), reason)
      assert.match(lines.join('\n'), /^warning The host framework may not load plugins\/x: .* This run installs it\.$/)
    })

  it('says once how to compare the version of the framework if the host config does not name it', async t => {
    for (const framework of [undefined, 'supervisor: none\n'] as const) {
      const scene = { yaml: 'framework_version: "2.0"\n', ...(framework === undefined ? {} : { framework }) }
      const lines = await linesOf(t, scene)
      assert.equal(lines.length, 1)
      assert.match(lines.join(), /^notice plugins\/x: .* add framework: \{version: "\.\.\."\} there\.$/)
    }
  })

  const REQUIRES = 'requires: [missing]\n'
  /** Plugins that another process has put there. */
  const crowd = (count: number, yaml = ''): Record<string, string> =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`plugins/p${index}/plugin.yaml`, yaml]))

  it('hears a cancel while it reads plugin.yaml files that take long', async t => {
    const costly = `a: [${'[],'.repeat(5000)}]\n`
    const signal = AbortSignal.abort(new Error('cancelled'))
    await assert.rejects(linesOf(t, { yaml: REQUIRES, host: crowd(3, costly), signal }), { message: 'cancelled' })
  })

  it('does not say which plugins are missing where there are too many to read', async t => {
    assert.equal((await linesOf(t, { yaml: REQUIRES, host: crowd(100) })).length, 1)
    assert.deepEqual(await linesOf(t, { yaml: REQUIRES, host: crowd(500) }), [])
  })
})
