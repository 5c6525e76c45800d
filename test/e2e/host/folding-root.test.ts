import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { type ActionResult, runAction } from '../../../local/runner.ts'
import { listTree } from '../../folders.ts'
import { mountFoldingDisk, whyNoFoldingDisk } from '../harness/folding-disk.ts'
import { openProjectStage, type ProjectStage, projectFiles } from '../harness/project-stage.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, rollBack, type Stage, writeFiles } from '../harness/stage.ts'

/** A stage whose project root is on a file system that ignores case. */
interface FoldingStage extends Stage {
  /** The project root as a folder in which each spelling is a name of its own. */
  readonly files: string
}

async function openFolding(t: TestContext): Promise<FoldingStage> {
  const { mounted, files } = mountFoldingDisk(t)
  const stage = await openStage()
  t.after(() => stage.close())
  const root = join(mounted, 'Host')
  mkdirSync(root)
  const deploy: Stage['deploy'] = (inputs, run) => stage.deploy({ 'project-root': root, ...inputs }, run)
  return { ...stage, root, deploy, files: join(files, 'Host') }
}

async function install(stage: Stage, version: string, more: Record<string, string> = {}, inputs = {}) {
  await stage.publish(version, pluginFiles(version, more))
  const result = await stage.deploy({ version, ...inputs })
  assert.equal(result.exitCode, 0, result.log)
  return result
}

async function act(stage: Stage, action: 'status', inputs: Record<string, string> = {}): Promise<ActionResult> {
  return await runAction({ action, workspace: stage.workspace, inputs: { 'project-root': stage.root, ...inputs } })
}

function assertOutcome({ exitCode, outputs, log }: ActionResult, expected: Record<string, string>): void {
  const found = Object.fromEntries(Object.keys(expected).map(name => [name, outputs[name]]))
  assert.deepEqual(found, expected, log)
  assert.equal(exitCode, expected['outcome'] === 'success' ? 0 : 1)
}

/** Asserts that this host has no drift, and no directory without a record. */
async function assertAsInstalled(stage: Stage): Promise<void> {
  const { outputs, log } = await act(stage, 'status')
  assert.deepEqual([outputs['drift'], JSON.parse(outputs['drift-details'] ?? '')], ['false', []], log)
  assert.doesNotMatch(log, /without a record/)
}

function text(stage: Pick<Stage, 'root'>, path: string): string {
  return readFileSync(join(stage.root, path), 'utf8')
}

function rows({ root }: Pick<Stage, 'root'>): { id: string; directory?: string }[] {
  return JSON.parse(readFileSync(join(root, '.hub-deploy/installed.json'), 'utf8')).installed
}

describe('a project root that ignores case', { skip: whyNoFoldingDisk() }, () => {
  it('has one plugins directory, however the input and integration.yaml spell it', async t => {
    const stage = await openFolding(t)
    await install(stage, '1.0.0')
    writeFiles(stage.root, { 'integration.yaml': 'plugins: {directory: PLUGINS}\n' })
    const updated = await install(stage, '2.0.0', {}, { 'plugins-directory': 'Plugins' })
    assert.equal(updated.outputs['install-path'], join(stage.root, 'plugins/greeter'))
    assert.doesNotMatch(updated.log, /correct one of the two/)
    assertOutcome(await stage.deploy(), { outcome: 'success', changed: 'false' })
    stage.writePlan(PLUGIN_PLAN.replaceAll('greeter', 'other'))
    await stage.publish('1.0.0', pluginFiles('1.0.0'), { slug: 'other' })
    const other = await stage.deploy({ slug: 'other', 'plugins-directory': 'pluginS' })
    assertOutcome(other, { outcome: 'success', 'install-path': join(stage.root, 'plugins/other') })
    assert.deepEqual(
      rows(stage).map(({ directory }) => directory),
      [undefined, undefined],
    )
    assert.deepEqual(readdirSync(stage.files).sort(), ['.hub-deploy', 'integration.yaml', 'plugins'])
    await assertAsInstalled(stage)
  })

  it('keeps the spelling of the first plugins directory', async t => {
    const stage = await openFolding(t)
    await install(stage, '1.0.0', {}, { 'plugins-directory': 'App/Plugins' })
    await install(stage, '2.0.0', {}, { 'plugins-directory': 'app/plugins' })
    assert.deepEqual(
      rows(stage).map(({ directory }) => directory),
      ['App/Plugins'],
    )
    assertOutcome(await rollBack(stage), { outcome: 'success', version: '1.0.0' })
    await assertAsInstalled(stage)
  })

  it('refuses a plugins directory inside a plugin, in any spelling, before the download', async t => {
    const stage = await openFolding(t)
    await install(stage, '1.0.0')
    await stage.publish('1.0.0', pluginFiles('1.0.0'), { slug: 'other' })
    const before = listTree(join(stage.files, 'plugins'))
    for (const directory of ['Plugins/greeter', 'plugins/GREETER/src']) {
      for (const slug of ['greeter', 'other']) {
        stage.writePlan(PLUGIN_PLAN.replaceAll('greeter', slug))
        const refused = await stage.deploy({ slug, 'plugins-directory': directory })
        assertOutcome(refused, { outcome: 'failed', 'error-code': 'place_taken' })
        assert.doesNotMatch(refused.log, /::group::fetching| mv /)
      }
    }
    assert.deepEqual(listTree(join(stage.files, 'plugins')), before)
  })

  it('refuses a symlink that spells its way to extensions differently', async t => {
    const stage = await openFolding(t)
    mkdirSync(join(stage.root, 'extensions'))
    symlinkSync(stage.root.replace('Host', 'HOST').concat('/Extensions'), join(stage.root, 'app'))
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    const refused = await stage.deploy({ 'plugins-directory': 'app' })
    assertOutcome(refused, { outcome: 'failed', 'error-code': 'unsafe_host' })
    assert.deepEqual(readdirSync(join(stage.root, 'extensions')), [])
  })

  it('refuses a host config below the root, however its path is spelled', async t => {
    const stage = await openFolding(t)
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    writeFiles(stage.root, { 'host-config.yaml': 'version: 1\nsupervisor: none\n' })
    const given = stage.root.replace('mounted/Host', 'mounted/HOST').concat('/Host-Config.yaml')
    assertOutcome(await stage.deploy({ 'host-config': given }), { outcome: 'failed', 'error-code': 'invalid_input' })
  })

  it('keeps .ENV and DATA under their own names, through an update, a failed update and a rollback', async t => {
    const stage = await openFolding(t)
    await install(stage, '1.0.0')
    const place = join(stage.root, 'plugins/greeter')
    writeFiles(place, { '.ENV': 'SECRET=1\n', 'DATA/rows': 'mine' })
    await assertAsInstalled(stage)
    const assertKept = async (): Promise<void> => {
      const found = readdirSync(join(stage.files, 'plugins/greeter')).filter(name => /^(?:\.env|data)$/i.test(name))
      assert.deepEqual(found.sort(), ['.ENV', 'DATA'])
      assert.deepEqual(
        [text(stage, 'plugins/greeter/.env'), text(stage, 'plugins/greeter/data/rows')],
        ['SECRET=1\n', 'mine'],
      )
      await assertAsInstalled(stage)
    }
    const { log } = await install(stage, '2.0.0', { 'data/rows': 'shipped' })
    assert.doesNotMatch(log, /differ from what was installed/)
    await assertKept()
    stage.writePlan(
      `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/env, depends_on: [files]}\n`,
    )
    const files = pluginFiles('3.0.0', { env: 'A=1\n', 'Data/rows': 'shipped' })
    await stage.publish('3.0.0', { ...files, 'plugin.yaml': `${files['plugin.yaml']}environment: {required: [KEY]}\n` })
    assertOutcome(await stage.deploy(), { outcome: 'rolled_back', 'running-version': '2.0.0' })
    await assertKept()
    assertOutcome(await rollBack(stage), { outcome: 'success', version: '1.0.0' })
    await assertKept()
  })

  it('leaves to the host what keep-paths names in another spelling than the artifact', async t => {
    const stage = await openFolding(t)
    const keep = { 'keep-paths': 'Data, DATA\nEtc/Local.conf' }
    await install(stage, '1.0.0', { 'data/rows': 'shipped', 'etc/local.conf': 'shipped' }, keep)
    writeFiles(stage.root, { 'plugins/greeter/data/rows': 'mine', 'plugins/greeter/etc/local.conf': 'mine' })
    await assertAsInstalled(stage)
    await install(stage, '2.0.0', { 'data/rows': 'shipped', 'etc/local.conf': 'shipped' }, keep)
    const found = ['data/rows', 'etc/local.conf'].map(path => text(stage, `plugins/greeter/${path}`))
    assert.deepEqual(found, ['mine', 'mine'])
    await assertAsInstalled(stage)
  })

  it('refuses a template at a kept path of another spelling', async t => {
    const stage = await openFolding(t)
    stage.writePlan(
      `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/data/env, depends_on: [files]}\n`,
    )
    await stage.publish('1.0.0', pluginFiles('1.0.0', { 'data/env': 'A=1\n' }))
    const refused = await stage.deploy({ 'keep-paths': 'Data' })
    assertOutcome(refused, { outcome: 'failed', 'error-code': 'invalid_plan' })
  })

  it('refuses an archive with two names that are one here, and changes nothing', async t => {
    const stage = await openFolding(t)
    await install(stage, '1.0.0')
    const before = listTree(join(stage.files, 'plugins'))
    const pairs = [
      ['a.txt', 'A.txt'],
      ['Lib/a.txt', 'lib/b.txt'],
      ['\u00e9.txt', '\u00c9.txt'],
    ]
    for (const [at, pair] of pairs.entries()) {
      const version = `2.0.${at}`
      await stage.publish(version, pluginFiles(version, Object.fromEntries(pair.map(path => [path, path]))))
      assertOutcome(await stage.deploy({ version }), { outcome: 'failed', 'error-code': 'unsafe_archive' })
      assert.deepEqual(listTree(join(stage.files, 'plugins')), before)
    }
  })

  it('has no drift where a file is only listed in another spelling, and has it where the bytes differ', async t => {
    const stage = await openFolding(t)
    await install(stage, '1.0.0', {
      'README.md': 'read',
      'caf\u00e9.txt': 'coffee',
      'lib/a.txt': 'a',
      'zoo/b.txt': 'b',
    })
    const files = join(stage.files, 'plugins/greeter')
    renameSync(join(files, 'README.md'), join(files, 'readme.md'))
    renameSync(join(files, 'caf\u00e9.txt'), join(files, 'CAFE\u0301.txt'))
    renameSync(join(files, 'lib'), join(files, 'Lib'))
    await assertAsInstalled(stage)
    writeFileSync(join(stage.root, 'plugins/greeter/zoo/b.txt'), 'x')
    writeFileSync(join(stage.root, 'plugins/greeter/LIB/a.txt'), 'x')
    writeFileSync(join(stage.root, 'plugins/greeter/ADDED.txt'), 'x')
    const [part] = JSON.parse((await act(stage, 'status')).outputs['drift-details'] ?? '')
    assert.deepEqual([part.added, part.removed, part.changed.sort()], [['ADDED.txt'], [], ['lib/a.txt', 'zoo/b.txt']])
    const { log } = await install(stage, '2.0.0', { 'README.md': 'read' })
    assert.match(log, /differ from what was installed: [^\n]*lib\/a\.txt/)
    assert.doesNotMatch(log, /readme\.md/i)
  })

  it('is one root, however project-root is spelled', async t => {
    const stage = await openFolding(t)
    await install(stage, '1.0.0')
    const root = stage.root.replace(/Host$/, 'host')
    await install(stage, '2.0.0', {}, { 'project-root': root })
    assertOutcome(await rollBack({ ...stage, root: stage.root.replace(/Host$/, 'HOST') }), {
      outcome: 'success',
      version: '1.0.0',
    })
    await assertAsInstalled(stage)
  })

  it('replaces a plugin.sig that the artifact ships in another spelling', async t => {
    const stage = await openFolding(t)
    const files = pluginFiles('1.0.0', { 'PLUGIN.SIG': 'theirs' })
    await stage.publish('1.0.0', { ...files, 'plugin.yaml': `${files['plugin.yaml']}execution_mode: trusted\n` })
    const result = await stage.deploy({ 'plugin-secret-key': 'the secret of this host' })
    assert.equal(result.exitCode, 0, result.log)
    assert.match(text(stage, 'plugins/greeter/plugin.sig'), /HMAC-SHA256/)
    await assertAsInstalled(stage)
  })
})

describe('a project on a root that ignores case', { skip: whyNoFoldingDisk() }, () => {
  async function openProject(t: TestContext): Promise<ProjectStage & { readonly files: string }> {
    const { mounted, files } = mountFoldingDisk(t)
    const stage = await openProjectStage()
    t.after(() => stage.close())
    const root = join(mounted, 'host')
    mkdirSync(root)
    return {
      ...stage,
      root,
      files: join(files, 'host'),
      deploy: (inputs, run) => stage.deploy({ 'project-root': root, ...inputs }, run),
    }
  }

  it('stays in its directory when the publisher spells that directory differently', async t => {
    const stage = await openProject(t)
    await stage.publish('1.0.0', projectFiles('1.0.0'))
    assertOutcome(await stage.deploy(), { outcome: 'success' })
    writeFiles(stage.root, { 'plugins/cart/DATA/rows': 'mine' })
    const respelled = Object.entries(projectFiles('2.0.0')).map(([path, file]) => [
      path.replace(/^plugins\//, 'Plugins/'),
      file.replaceAll('plugins/', 'Plugins/'),
    ])
    await stage.publish('2.0.0', Object.fromEntries(respelled), { pluginsDirname: 'Plugins' })
    assertOutcome(await stage.deploy(), { outcome: 'success', changed: 'true' })
    assertOutcome(await stage.deploy(), { outcome: 'success', changed: 'false' })
    assert.match(text(stage, 'plugins/cart/src/main.py'), /2\.0\.0/)
    assert.equal(text(stage, 'plugins/cart/data/rows'), 'mine')
    assert.deepEqual(readdirSync(join(stage.files, 'plugins/cart')).includes('DATA'), true)
    assert.deepEqual(
      rows(stage).map(({ directory }) => directory),
      [undefined, undefined, undefined],
    )
    assert.ok(!readdirSync(stage.files).includes('Plugins') && existsSync(join(stage.files, 'plugins')))
    const inputs = { 'project-id': 'shop', 'project-root': stage.root, 'host-id': 'host-1' }
    const back = await runAction({ action: 'rollback', workspace: stage.workspace, inputs })
    assertOutcome(back, { outcome: 'success', version: '1.0.0' })
    assert.equal(text(stage, 'plugins/cart/data/rows'), 'mine')
  })

  it('is refused if its archive has two names that are one here', async t => {
    const stage = await openProject(t)
    await stage.publish('1.0.0', projectFiles('1.0.0', { 'plugins/cart/src/MAIN.py': 'evil' }))
    assertOutcome(await stage.deploy(), { outcome: 'failed', 'error-code': 'unsafe_archive' })
    assert.ok(!existsSync(join(stage.files, 'plugins')))
  })
})
