import assert from 'node:assert/strict'
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { acceptedReports } from '../harness/evidence.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const PLAN = `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/etc/env.template, depends_on: [files]}\n`
const TEMPLATE = '# Settings\nGREETING=hello\nTOKEN=\nexport PLACE="here"\n\nLEVEL=3\n'

type Settings = Readonly<Record<string, string>>

let stage: Stage
let settings: string
beforeEach(async () => {
  stage = await openStage()
  stage.writePlan(PLAN)
  settings = join(stage.root, 'plugins/greeter.env')
})
afterEach(() => stage.close())

async function deploy(environment: string, given: Settings, template = TEMPLATE): Promise<ActionResult> {
  const manifest = `name: greeter\nversion: "1.0.0"\nenvironment: ${environment}\n`
  await stage.publish('1.0.0', { ...pluginFiles('1.0.0'), 'plugin.yaml': manifest, 'etc/env.template': template })
  return stage.deploy({ settings: linesOf(given) })
}

function linesOf(settings: Settings): string {
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('')
}

describe('write_env', () => {
  it('seeds the settings from the template, with mode 0600 and the values of the input', async () => {
    const given = { TOKEN: 'secret of the plugin', LEVEL: '5', UNRELATED: 'x' }
    const result = await deploy('{required: [TOKEN], optional: [LEVEL]}', given)
    assert.equal(result.exitCode, 0, result.log)
    assert.equal(
      readFileSync(settings, 'utf8'),
      `# Settings\nGREETING=hello\nTOKEN='secret of the plugin'\nexport PLACE="here"\n\nLEVEL=5\n`,
    )
    assert.equal(statSync(settings).mode & 0o777, 0o600)
    assert.equal(statSync(settings).nlink, 1)
    const published = [result.log, result.outputs, result.summary, acceptedReports(stage), reportText(result)]
    assert.doesNotMatch(JSON.stringify(published), /(?<!::add-mask::)secret of the plugin/)
    assert.match(result.log, /^::add-mask::secret of the plugin$/m)
  })

  it("does not remove the hub's address from the report if a setting has the same value", async () => {
    const result = await stage.deploy({ version: '9.9.9', settings: `HUB=${stage.hub.url}` })
    assert.equal(result.exitCode, 1, result.log)
    assert.ok(reportText(result).includes(` from ${stage.hub.url}: the hub answered 404`), reportText(result))
  })

  it('adds a required key that the template lacks', async () => {
    const result = await deploy('{required: [EXTRA]}', { EXTRA: 'value' })
    assert.equal(result.exitCode, 0, result.log)
    assert.match(readFileSync(settings, 'utf8'), /^EXTRA=value$/m)
  })

  it('accepts a required key that the template itself fills', { skip: ONLY_IN_CI }, async () => {
    assert.equal((await deploy('{required: [GREETING]}', {})).exitCode, 0)
  })

  it('never touches an existing file', async () => {
    assert.equal((await deploy('{}', {})).exitCode, 0)
    writeFileSync(settings, 'MINE=1\n')
    const before = statSync(settings)
    await stage.publish('1.1.0', pluginFiles('1.1.0', { 'etc/env.template': TEMPLATE }))
    const result = await stage.deploy({ settings: 'TOKEN=new' })
    assert.deepEqual([result.exitCode, result.outputs['version']], [0, '1.1.0'])
    assert.equal(readFileSync(settings, 'utf8'), 'MINE=1\n')
    assert.deepEqual([statSync(settings).mtimeMs, statSync(settings).mode], [before.mtimeMs, before.mode])
  })

  for (const [name, theirs] of sampled(Object.entries({ 'an existing file': 'THEIRS=1\n', nothing: undefined }), 1)) {
    it(`does not write through a symlink to ${name}`, async () => {
      await stage.publish('1.0.0', pluginFiles('1.0.0', { 'etc/env.template': TEMPLATE }))
      const elsewhere = join(stage.workspace.path, 'elsewhere')
      if (theirs !== undefined) writeFileSync(elsewhere, theirs)
      mkdirSync(join(stage.root, 'plugins'))
      symlinkSync(elsewhere, settings)
      await stage.deploy()
      assert.equal(existsSync(elsewhere) ? readFileSync(elsewhere, 'utf8') : undefined, theirs)
      assert.equal(readlinkSync(settings), elsewhere)
    })
  }

  it('rewrites the settings when only they are missing, and reports a change', { skip: ONLY_IN_CI }, async () => {
    assert.equal((await deploy('{}', {})).exitCode, 0)
    rmSync(settings)
    const result = await stage.deploy()
    assert.deepEqual([result.exitCode, result.outputs['changed'], existsSync(settings)], [0, 'true', true])
  })

  const unusable: Record<string, [string, Settings]> = {
    'a required key is empty in the template and the settings': ['{required: [TOKEN]}', {}],
    'a required key is set to an empty value': ['{required: [TOKEN]}', { TOKEN: '' }],
    'a required key is missing in both the template and the settings': ['{required: [NOWHERE]}', {}],
  }
  for (const [name, [environment, given]] of sampled(Object.entries(unusable), 2)) {
    it(`fails and restores the files when ${name}`, async () => {
      const result = await deploy(environment, given)
      const { outputs } = result
      assert.deepEqual(
        [result.exitCode, outputs['outcome'], outputs['error-code'], outputs['failed-step']],
        [1, 'rolled_back', 'step_failed', 'env'],
      )
      assert.deepEqual([existsSync(settings), existsSync(join(stage.root, 'plugins/greeter'))], [false, false])
    })
  }

  it("does not fill in the artifact's template from the environment of the runner or the step", async () => {
    const leaks = {
      AWS_SECRET_ACCESS_KEY: 'leak-1',
      VAULT_TOKEN: 'leak-2',
      https_proxy: 'http://u:leak-3@proxy.example',
      PLACE: 'leak-4',
    }
    const manifest = `name: greeter\nversion: "1.0.0"\nenvironment: {optional: [VAULT_TOKEN, NPM_TOKEN, PATH]}\n`
    const template = 'AWS_SECRET_ACCESS_KEY=\nhttps_proxy=\nPLACE=here\nconstructor=\ntoString=\n'
    await stage.publish('1.0.0', { ...pluginFiles('1.0.0'), 'plugin.yaml': manifest, 'etc/env.template': template })
    const env = { ...leaks, NPM_TOKEN: 'leak-5', no_proxy: '127.0.0.1' }
    const result = await stage.deploy({ settings: 'OTHER=1' }, { env })
    assert.equal(result.exitCode, 0, result.log)
    assert.equal(readFileSync(settings, 'utf8'), template)
  })

  it('refuses settings that cannot be written, before anything is fetched, and names each key', async () => {
    const values = `GOOD=1\nTOKEN=hunter\${HOME}22\nWITHOUT AN EQUALS SIGN hunter22\n`
    await stage.publish('1.0.0', pluginFiles('1.0.0', { 'etc/env.template': TEMPLATE }))
    const { exitCode, outputs, log, summary } = await stage.deploy({ settings: values })
    assert.deepEqual([exitCode, outputs['outcome'], outputs['error-code']], [1, 'failed', 'invalid_input'])
    assert.match(log, /settings must contain, for TOKEN in line 2, .*line 3/)
    assert.doesNotMatch(JSON.stringify([log.replace(/^::add-mask::.*$/gm, ''), summary]), /hunter/)
    assert.deepEqual([existsSync(settings), existsSync(join(stage.root, 'plugins'))], [false, false])
  })

  it('does not copy inputs of the action into the settings', async () => {
    const result = await deploy('{optional: [INPUT_KIND]}', {}, 'INPUT_SLUG=\nINPUT_VERSION=\n')
    assert.equal(result.exitCode, 0, result.log)
    assert.equal(readFileSync(settings, 'utf8'), 'INPUT_SLUG=\nINPUT_VERSION=\n')
  })
})

function reportText(result: ActionResult): string {
  return readFileSync(result.outputs['report-path'] ?? '', 'utf8')
}
