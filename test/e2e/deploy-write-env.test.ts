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
import type { ActionResult } from '../../local/runner.ts'
import { acceptedReports } from './harness/evidence.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage } from './harness/stage.ts'

const PLAN = `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/etc/env.template, depends_on: [files]}\n`
const TEMPLATE = '# Settings\nGREETING=hello\nTOKEN=\nexport PLACE="here"\n\nLEVEL=3\n'

let stage: Stage
let settings: string
beforeEach(async () => {
  stage = await openStage()
  stage.writePlan(PLAN)
  settings = join(stage.root, 'plugins/greeter.env')
})
afterEach(() => stage.close())

async function deploy(environment: string, env: Record<string, string>, template = TEMPLATE): Promise<ActionResult> {
  const manifest = `name: greeter\nversion: "1.0.0"\nenvironment: ${environment}\n`
  await stage.publish('1.0.0', { ...pluginFiles('1.0.0'), 'plugin.yaml': manifest, 'etc/env.template': template })
  return stage.deploy({}, { env })
}

describe('write_env', () => {
  it('seeds the settings from the template, 0600, with the values of the step', async () => {
    const env = { TOKEN: 'secret of the plugin', LEVEL: '5', UNRELATED: 'x' }
    const result = await deploy('{required: [TOKEN], optional: [LEVEL]}', env)
    assert.equal(result.exitCode, 0, result.log)
    assert.equal(
      readFileSync(settings, 'utf8'),
      '# Settings\nGREETING=hello\nTOKEN=secret of the plugin\nexport PLACE="here"\n\nLEVEL=5\n',
    )
    assert.equal(statSync(settings).mode & 0o777, 0o600)
    assert.equal(statSync(settings).nlink, 1)
    const published = [result.log, result.outputs, result.summary, acceptedReports(stage), reportText(result)]
    assert.doesNotMatch(JSON.stringify(published), /secret of the plugin/)
  })

  it('adds a required key that the template lacks', async () => {
    const result = await deploy('{required: [EXTRA]}', { EXTRA: 'value' })
    assert.equal(result.exitCode, 0, result.log)
    assert.match(readFileSync(settings, 'utf8'), /^EXTRA=value$/m)
  })

  it('accepts a required key that the template itself fills', async () => {
    assert.equal((await deploy('{required: [GREETING]}', {})).exitCode, 0)
  })

  it('never touches an existing file', async () => {
    assert.equal((await deploy('{}', {})).exitCode, 0)
    writeFileSync(settings, 'MINE=1\n')
    const before = statSync(settings)
    await stage.publish('1.1.0', pluginFiles('1.1.0', { 'etc/env.template': TEMPLATE }))
    const result = await stage.deploy({}, { env: { TOKEN: 'new' } })
    assert.deepEqual([result.exitCode, result.outputs['version']], [0, '1.1.0'])
    assert.equal(readFileSync(settings, 'utf8'), 'MINE=1\n')
    assert.deepEqual([statSync(settings).mtimeMs, statSync(settings).mode], [before.mtimeMs, before.mode])
  })

  for (const [name, theirs] of Object.entries({ 'an existing file': 'THEIRS=1\n', nothing: undefined })) {
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

  it('writes the settings again when only they are missing, and reports a change', async () => {
    assert.equal((await deploy('{}', {})).exitCode, 0)
    rmSync(settings)
    const result = await stage.deploy()
    assert.deepEqual([result.exitCode, result.outputs['changed'], existsSync(settings)], [0, 'true', true])
  })

  const unusable: Record<string, [string, Record<string, string>]> = {
    'a required key is empty in the template and the step': ['{required: [TOKEN]}', {}],
    'a required key is set to nothing': ['{required: [TOKEN]}', { TOKEN: '' }],
    'a required key is nowhere': ['{required: [NOWHERE]}', {}],
    'a value holds a line break': ['{}', { TOKEN: 'two\nlines' }],
  }
  for (const [name, [environment, env]] of Object.entries(unusable)) {
    it(`fails and restores the files when ${name}`, async () => {
      const result = await deploy(environment, env)
      const { outputs } = result
      assert.deepEqual(
        [result.exitCode, outputs['outcome'], outputs['error-code'], outputs['failed-step']],
        [1, 'rolled_back', 'step_failed', 'env'],
      )
      assert.deepEqual([existsSync(settings), existsSync(join(stage.root, 'plugins/greeter'))], [false, false])
    })
  }

  it('does not copy inputs of the action into the settings', async () => {
    const result = await deploy('{optional: [INPUT_KIND]}', {}, 'INPUT_SLUG=\nINPUT_VERSION=\n')
    assert.equal(result.exitCode, 0, result.log)
    assert.equal(readFileSync(settings, 'utf8'), 'INPUT_SLUG=\nINPUT_VERSION=\n')
  })
})

function reportText(result: ActionResult): string {
  return readFileSync(result.outputs['report-path'] ?? '', 'utf8')
}
