import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { type ActionResult, runAction } from '../../../local/runner.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage, writeFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const PLAN = `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/etc/env, depends_on: [files]}\n`

const NEEDS_ROOT = process.getuid?.() !== 0 && 'needs root'

let stage: Stage
beforeEach(async () => {
  stage = await openStage()
  stage.writePlan(PLAN)
})
afterEach(() => stage.close())

async function deploy(version: string, inputs: Record<string, string> = {}): Promise<ActionResult> {
  await stage.publish(version, pluginFiles(version, { 'etc/env': 'COLOUR=blue\n' }))
  return await stage.deploy(inputs)
}

function integrate(directory: string): void {
  writeFiles(stage.root, { 'integration.yaml': `name: host\nplugins:\n  directory: ${directory}\n` })
}

function assertOutcome({ exitCode, outputs, log }: ActionResult, expected: Record<string, string>): void {
  const found = Object.fromEntries(Object.keys(expected).map(name => [name, outputs[name]]))
  assert.deepEqual(found, expected, log)
  assert.equal(exitCode, expected['outcome'] === 'success' ? 0 : 1)
}

function installed(version: string, directory: string) {
  return { outcome: 'success', version, 'install-path': join(stage.root, directory, 'greeter') }
}

function text(path: string): string {
  return readFileSync(join(stage.root, path), 'utf8')
}

function rows(): { directory?: string; version: string }[] {
  return JSON.parse(text('.hub-deploy/installed.json')).installed
}

/** Runs the commands that a refusal lists. */
function moveAsAdvised(log: string): void {
  const [, commands] = /run this again: (.*)$/m.exec(log) ?? []
  execFileSync('sh', ['-ec', commands ?? 'false'])
}

async function act(action: 'status' | 'rollback', inputs: Record<string, string> = {}): Promise<ActionResult> {
  return await runAction({ action, workspace: stage.workspace, inputs: { 'project-root': stage.root, ...inputs } })
}

describe('the plugins directory', () => {
  it('is the directory that the input names, from the first install to the rollback', async () => {
    const given = { 'plugins-directory': './app/of/plugins/' }
    assertOutcome(await deploy('1.0.0', given), installed('1.0.0', 'app/of/plugins'))
    assert.equal(text('app/of/plugins/greeter.env'), 'COLOUR=blue\n')
    writeFiles(stage.root, { 'app/of/plugins/greeter/data/db': 'mine' })
    assertOutcome(await deploy('2.0.0', given), installed('2.0.0', 'app/of/plugins'))
    assertOutcome(await stage.deploy(given), { outcome: 'success', changed: 'false' })
    assert.deepEqual(JSON.parse((await act('status')).outputs['drift-details'] ?? ''), [])
    writeFiles(stage.root, { 'app/of/plugins/greeter/src/main.py': 'changed' })
    const status = await act('status')
    assert.equal(JSON.parse(status.outputs['drift-details'] ?? '')[0].changed[0], 'src/main.py')
    assert.match(status.log, /app\/of\/plugins\/greeter 2\.0\.0/)
    assertOutcome(await act('rollback', { id: 'greeter' }), installed('1.0.0', 'app/of/plugins'))
    assert.deepEqual([text('app/of/plugins/greeter/data/db'), existsSync(join(stage.root, 'plugins'))], ['mine', false])
    assert.match(text('app/of/plugins/greeter/src/main.py'), /1\.0\.0/)
    assert.equal(rows()[0]?.directory, 'app/of/plugins')
  })

  it('is the one that integration.yaml names, and when that changes, the operator must move the plugin', {
    skip: ONLY_IN_CI,
  }, async () => {
    assertOutcome(await deploy('1.0.0'), installed('1.0.0', 'plugins'))
    writeFiles(stage.root, { 'plugins/greeter.env': 'COLOUR=red\n', 'plugins/greeter/data/db': 'mine' })
    await deploy('2.0.0')
    integrate('./app')
    const taken = { outcome: 'failed', 'error-code': 'place_taken', 'running-version': '2.0.0' }
    const refused = [await stage.deploy({ 'dry-run': 'true' }), await act('rollback', { id: 'greeter' })]
    for (const result of [...refused, await stage.deploy()]) {
      assertOutcome(result, taken)
      assert.doesNotMatch(result.log, /::group::fetching/)
    }
    assert.ok(!existsSync(join(stage.root, 'app')))
    moveAsAdvised((await stage.deploy()).log)
    assert.deepEqual(JSON.parse((await act('status')).outputs['drift-details'] ?? ''), [])
    assertOutcome(await stage.deploy(), { ...installed('2.0.0', 'app'), changed: 'false' })
    assert.equal(rows()[0]?.directory, 'app')
    assert.deepEqual([text('app/greeter.env'), text('app/greeter/data/db')], ['COLOUR=red\n', 'mine'])
    assertOutcome(await act('rollback', { id: 'greeter' }), installed('1.0.0', 'app'))
    assert.deepEqual([text('app/greeter.env'), text('app/greeter/data/db')], ['COLOUR=red\n', 'mine'])
  })

  it('is where a rollback restores a version that the operator has moved but not deployed yet', async () => {
    assertOutcome(await deploy('1.0.0'), installed('1.0.0', 'plugins'))
    assertOutcome(await deploy('2.0.0'), installed('2.0.0', 'plugins'))
    integrate('app')
    moveAsAdvised((await stage.deploy()).log)
    assertOutcome(await act('rollback', { id: 'greeter' }), installed('1.0.0', 'app'))
    assert.deepEqual([rows()[0]?.directory, existsSync(join(stage.root, 'plugins/greeter'))], ['app', false])
  })

  it('is still the new one after an update that fails there', async () => {
    assertOutcome(await deploy('1.0.0'), installed('1.0.0', 'plugins'))
    writeFiles(stage.root, { 'plugins/greeter/data/db': 'mine', 'plugins/greeter.env': '' })
    integrate('app/plugins')
    moveAsAdvised((await stage.deploy()).log)
    writeFiles(stage.root, { 'app/plugins/greeter/src/main.py': 'edited' })
    const files = pluginFiles('2.0.0', { 'etc/env': '' })
    await stage.publish('2.0.0', { ...files, 'plugin.yaml': `${files['plugin.yaml']}environment: {required: [KEY]}\n` })
    const failed = await stage.deploy()
    assertOutcome(failed, { outcome: 'rolled_back', 'running-version': '1.0.0' })
    assert.match(failed.log, /differ from what was installed: app\/plugins\/greeter\/src\/main\.py/)
    assert.deepEqual([text('app/plugins/greeter/data/db'), text('app/plugins/greeter.env')], ['mine', ''])
    assert.equal(text('app/plugins/greeter/src/main.py'), 'edited')
    assert.equal(rows()[0]?.directory, undefined)
  })

  it('is the same directory under another spelling', async () => {
    assertOutcome(await deploy('1.0.0'), installed('1.0.0', 'plugins'))
    symlinkSync('plugins', join(stage.root, 'app'))
    integrate('app')
    assertOutcome(await deploy('2.0.0'), installed('2.0.0', 'plugins'))
    assertOutcome(await stage.deploy({ 'plugins-directory': 'app' }), { outcome: 'success', changed: 'false' })
  })

  it('stays the same, with a warning, while integration.yaml cannot be used', async () => {
    integrate('app')
    assertOutcome(await deploy('1.0.0'), installed('1.0.0', 'app'))
    integrate('../elsewhere')
    const result = await deploy('2.0.0')
    assertOutcome(result, installed('2.0.0', 'app'))
    assert.match(result.log, /::warning.*integration\.yaml has a plugins\.directory that must be a relative path/)
  })

  it('never makes a plugin replace a foreign directory', async () => {
    integrate('data')
    writeFiles(stage.root, { 'data/greeter/orders': 'theirs' })
    const refused = await deploy('1.0.0')
    assertOutcome(refused, { outcome: 'failed', 'error-code': 'place_taken' })
    assertOutcome(await stage.deploy({ 'plugins-directory': 'plugins' }), installed('1.0.0', 'plugins'))
    assertOutcome(await stage.deploy({ 'allow-takeover': 'true' }), { outcome: 'failed', 'error-code': 'place_taken' })
    for (const inside of sampled(['plugins/greeter/src', 'plugins/greeter'], 1)) {
      integrate(inside)
      assertOutcome(await stage.deploy(), { outcome: 'failed', 'error-code': 'place_taken' })
    }
    assert.equal(text('data/greeter/orders'), 'theirs')
  })

  it('must not lead, through a symlink, out of the root or into a directory with another purpose', async () => {
    const targets = {
      outside: stage.folder,
      own: '.hub-deploy',
      shelf: 'extensions',
      'a/b': '../.hub-deploy/snapshots',
    }
    for (const [directory, target] of Object.entries(targets)) {
      mkdirSync(join(stage.root, directory, '..'), { recursive: true })
      symlinkSync(target, join(stage.root, directory))
    }
    mkdirSync(join(stage.root, 'extensions'))
    for (const directory of sampled(Object.keys(targets), 2)) {
      integrate(directory)
      assertOutcome(await deploy('1.0.0'), { outcome: 'failed', 'error-code': 'unsafe_host' })
    }
    assertOutcome(await stage.deploy({ 'plugins-directory': 'own' }), {
      'error-code': 'unsafe_host',
      outcome: 'failed',
    })
    assert.ok(!existsSync(join(stage.folder, 'greeter')))
  })

  it('is refused if the input names a directory that is not for plugins', async () => {
    const wrongs = ['../x', '/srv', 'a/../../x', '.', 'Extensions/x', 'extensions', 'a b', '.hub-deploy/staging']
    for (const wrong of sampled(wrongs, 3)) {
      const result = await stage.deploy({ 'plugins-directory': wrong })
      assertOutcome(result, { outcome: 'failed', 'error-code': 'invalid_input' })
    }
  })

  it('is never a directory that another user can write to', { skip: NEEDS_ROOT }, async () => {
    integrate('app/plugins')
    mkdirSync(join(stage.root, 'app'), { recursive: true, mode: 0o777 })
    chmodSync(join(stage.root, 'app'), 0o777)
    const result = await deploy('1.0.0')
    assertOutcome(result, { outcome: 'failed', 'error-code': 'unsafe_host' })
    assert.match(result.log, /chmod go-w .*\/app\b.* Nothing was installed or moved\./)
    assert.ok(!result.log.includes('was touched') && existsSync(result.outputs['report-path'] ?? ''), result.log)
    writeFileSync(join(stage.root, 'integration.yaml'), '')
    assertOutcome(await stage.deploy(), installed('1.0.0', 'plugins'))
  })

  it('is checked even if only an installed plugin uses it', { skip: NEEDS_ROOT }, async () => {
    assertOutcome(await deploy('1.0.0', { 'plugins-directory': 'app' }), installed('1.0.0', 'app'))
    chmodSync(join(stage.root, 'app'), 0o777)
    for (const result of [await act('status'), await act('rollback', { id: 'greeter' }), await stage.deploy()])
      assert.equal(result.outputs['error-code'], 'unsafe_host', result.log)
  })
})
