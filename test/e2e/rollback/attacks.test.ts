import assert from 'node:assert/strict'
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { assertNothingStrays, listHost } from '../harness/evidence.ts'
import { bindMount, whyNoMounting } from '../harness/mounts.ts'
import {
  openRetainingHost,
  openStage,
  planWith,
  pluginFiles,
  rollBack,
  type Stage,
  writeFiles,
} from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const SNAPSHOT = '.hub-deploy/snapshots/plugins/greeter/1-1.0.0'
const PRELOADED = join(import.meta.dirname, '../harness/before-restore.mjs')

/** Changes to a snapshot by the service's user, or by a faulty backup. */
const CHANGES: Record<string, (snapshot: string, stage: Stage) => void> = {
  'other bytes of the same size and time': snapshot => {
    const path = join(snapshot, 'src/main.py')
    const { atime, mtime } = statSync(path)
    writeFileSync(path, readFileSync(path, 'utf8').replace('hello', 'HELLO'))
    utimesSync(path, atime, mtime)
  },
  'an extra file': snapshot => writeFileSync(join(snapshot, 'src/extra.py'), 'evil\n'),
  'a missing file': snapshot => rmSync(join(snapshot, 'src/main.py')),
  'another mode': snapshot => chmodSync(join(snapshot, 'src/main.py'), 0o755),
  'a symlink in place of a file': snapshot => {
    rmSync(join(snapshot, 'src/main.py'))
    symlinkSync('/etc/hostname', join(snapshot, 'src/main.py'))
  },
  'a symlink in place of the snapshot': (snapshot, { folder }) => {
    renameSync(snapshot, join(folder, 'elsewhere'))
    symlinkSync(join(folder, 'elsewhere'), snapshot)
  },
  'a damaged record': (_, { root }) => {
    const trees = join(root, '.hub-deploy/trees')
    for (const name of readdirSync(trees)) writeFileSync(join(trees, name), 'nonsense\n')
  },
  'a missing record': (_, { root }) => {
    const trees = join(root, '.hub-deploy/trees')
    for (const name of readdirSync(trees)) rmSync(join(trees, name))
  },
}

/** Shell: changes to the snapshot after it was compared with its record, and before it is moved. */
const RACES: Record<string, string> = {
  'a file changes': `printf 'print("EVIL! from 1.0.0")\\n' > ${SNAPSHOT}/src/main.py`,
  'a file is added': `touch ${SNAPSHOT}/src/extra.py`,
  'the snapshot becomes a symlink': `mv ${SNAPSHOT} elsewhere; ln -s ../../../../elsewhere ${SNAPSHOT}`,
  'the snapshot becomes another directory': `mv ${SNAPSHOT} elsewhere; cp -r elsewhere ${SNAPSHOT}; echo >> ${SNAPSHOT}/plugin.yaml`,
}

const REFUSALS: Record<string, { inputs: Record<string, string>; code: string; says?: RegExp }> = {
  'a version that is a path': { inputs: { 'to-version': '../../../../etc' }, code: 'invalid_input' },
  'a version with a line break': { inputs: { 'to-version': '1.0.0\n::set-output name=x::y' }, code: 'invalid_input' },
  'a version that is not retained': { inputs: { 'to-version': '0.5.0' }, code: 'no_snapshot' },
  'an id that is a path': { inputs: { id: '../greeter' }, code: 'invalid_input' },
  'a missing id': { inputs: { id: '' }, code: 'missing_input' },
  'an id and a project': { inputs: { 'project-id': 'shop' }, code: 'invalid_input' },
  'an id that is not installed': { inputs: { id: 'stranger' }, code: 'no_snapshot' },
  'the other kind': {
    inputs: { kind: 'service' },
    code: 'no_snapshot',
    says: /as plugins\/greeter: set kind: plugin\./,
  },
  'a project that is not installed': { inputs: { id: '', 'project-id': 'shop' }, code: 'no_snapshot' },
}

async function assertRefused(stage: Stage, code: string, inputs: Record<string, string> = {}): Promise<string> {
  const before = listHost(stage.root)
  const { outputs, log, exitCode } = await rollBack(stage, inputs)
  assert.deepEqual(
    [exitCode, outputs['outcome'], outputs['error-code'], outputs['changed']],
    [1, 'failed', code, 'false'],
    log,
  )
  assert.deepEqual(listHost(stage.root), before)
  return log
}

describe('a snapshot that was changed', () => {
  for (const [name, change] of sampled(Object.entries(CHANGES), 3)) {
    it(`is refused before anything is moved: ${name}`, async t => {
      const stage = await openRetainingHost(t)
      change(join(stage.root, SNAPSHOT), stage)
      const logs = [
        await assertRefused(stage, 'snapshot_modified'),
        await assertRefused(stage, 'snapshot_modified', { 'to-version': '1.0.0' }),
      ]
      const isDamage = name === 'a damaged record'
      const isSymlink = name === 'a symlink in place of the snapshot'
      for (const log of logs) {
        assert.equal(/The record of the files of \S+ is damaged/.test(log), isDamage, log)
        assert.equal(/a snapshot \(a symlink instead of a directory\)/.test(log), isSymlink, log)
      }
    })
  }

  for (const [name, shell] of sampled(Object.entries(RACES), 2)) {
    it(`is refused before the installed version is moved, even if ${name} right before the snapshot is moved`, async t => {
      const stage = await openRetainingHost(t)
      const env = { NODE_OPTIONS: `--import=${PRELOADED}`, BEFORE_RESTORE: `cd '${stage.root}'; ${shell}` }
      const { outputs, log } = await rollBack(stage, {}, { env })
      assert.equal(outputs['error-code'], 'snapshot_modified', log)
      assert.equal(outputs['running-version'], '2.0.0')
      assert.match(readFileSync(join(stage.root, 'plugins/greeter/src/main.py'), 'utf8'), /2\.0\.0/)
      assert.ok(readdirSync(join(stage.root, '.hub-deploy/snapshots/plugins/greeter')).includes('1-1.0.0'))
    })
  }

  it('is refused if something is mounted in it', { skip: whyNoMounting() }, async t => {
    const stage = await openRetainingHost(t)
    const [inside, elsewhere] = [join(stage.root, SNAPSHOT, 'mounted'), join(stage.folder, 'volume')]
    // A subtest, so that its mount ends before the stage is closed.
    await t.test('by a bind mount', async mounting => {
      bindMount(mounting, elsewhere, inside)
      await assertRefused(stage, 'unsafe_host')
    })
  })
})

describe('code in the bytecode caches of a snapshot', () => {
  const PLANTED = {
    'src/__pycache__/main.cpython-312.pyc': 'evil\n',
    'src/__pycache__/deep/more.so': 'evil\n',
    '__pycache__/top.pyc': 'evil\n',
    'data/__pycache__/of-the-host.pyc': 'kept\n',
  }

  async function openPlanted(t: TestContext): Promise<Stage> {
    const stage = await openStage()
    t.after(() => stage.close())
    for (const version of ['1.0.0', '2.0.0']) {
      await stage.publish(version, pluginFiles(version))
      const { exitCode, log } = await stage.deploy({ version })
      assert.equal(exitCode, 0, log)
      writeFiles(join(stage.root, 'plugins/greeter'), PLANTED)
    }
    return stage
  }

  function cachedIn(path: string): string[] {
    const files = readdirSync(path, { recursive: true, encoding: 'utf8' })
    return files.filter(file => /__pycache__\/.*\.(?:pyc|so)$/.test(file)).sort()
  }

  it('is not restored, unless it belongs to the host', async t => {
    const stage = await openPlanted(t)
    const { outputs, log } = await rollBack(stage)
    assert.deepEqual([outputs['outcome'], outputs['running-version']], ['success', '1.0.0'], log)
    assert.deepEqual(cachedIn(join(stage.root, 'plugins/greeter')), ['data/__pycache__/of-the-host.pyc'])
    assertNothingStrays(stage.root)
  })

  it('is back where it was when the rollback fails', async t => {
    const stage = await openPlanted(t)
    const before = listHost(stage.root)
    writeFiles(stage.workspace.path, {
      'host.yaml': 'version: 1\nprovision: {greeter: {command: ["false"]}}\n',
      'back.yaml': planWith('action: provision, plugin: greeter'),
    })
    const { outputs, log } = await rollBack(stage, { 'host-config': 'host.yaml', 'install-plan': 'back.yaml' })
    assert.deepEqual([outputs['outcome'], outputs['running-version']], ['rolled_back', '2.0.0'], log)
    const isFile = ([path]: [string, unknown]) => /^(plugins|\.hub-deploy\/snapshots)\//.test(path)
    const files = (list: object) => Object.entries(list).filter(isFile)
    assert.deepEqual(files(listHost(stage.root)), files(before))
  })
})

describe('a rollback that is not possible', () => {
  for (const [name, { inputs, code, says = /./ }] of sampled(Object.entries(REFUSALS), 3)) {
    it(`is refused: ${name}`, async t => {
      assert.match(await assertRefused(await openRetainingHost(t), code, inputs), says)
    })
  }

  it('names the existing snapshots', { skip: ONLY_IN_CI }, async t => {
    const log = await assertRefused(await openRetainingHost(t), 'no_snapshot', { 'to-version': '0.5.0' })
    assert.match(log, /The host has 1\.0\.0\./)
  })

  it('does not touch a plugin that this action has not installed', { skip: ONLY_IN_CI }, async t => {
    const stage = await openRetainingHost(t)
    mkdirSync(join(stage.root, 'plugins/foreign'))
    writeFileSync(join(stage.root, 'plugins/foreign/plugin.yaml'), 'name: foreign\n')
    await assertRefused(stage, 'no_snapshot', { id: 'foreign' })
  })

  it('does not restore a snapshot of another plugin that used the same directory', async t => {
    const stage = await openRetainingHost(t)
    const files = { 'plugin.yaml': 'name: other\nversion: "5.0.0"\n', 'src/main.py': 'print("other")\n' }
    await stage.publish('5.0.0', files, { slug: 'other' })
    stage.writePlan(
      'format_version: "1"\nproject_id: other\nversion: "1"\nsteps:\n  - {id: files, action: install_plugin, plugin: greeter, snapshot: true}\n',
    )
    const taken = await stage.deploy({ slug: 'other', version: '5.0.0', 'allow-takeover': 'true' })
    assert.equal(taken.outputs['outcome'], 'success', taken.log)
    await assertRefused(stage, 'no_snapshot')
    await assertRefused(stage, 'no_snapshot', { 'to-version': '2.0.0' })
  })

  it('does not accept the slug of another plugin', async t => {
    const stage = await openRetainingHost(t)
    const hub = { 'hub-url': stage.hub.url, 'api-key': stage.apiKey, slug: 'other' }
    const { outputs } = await rollBack(stage, hub)
    assert.equal(outputs['error-code'], 'invalid_input')
  })

  it('does not believe a row that names a version other than that of the files', async t => {
    const stage = await openRetainingHost(t)
    const path = join(stage.root, '.hub-deploy/installed.json')
    const record = JSON.parse(readFileSync(path, 'utf8'))
    record.installed[0].snapshots[0].version = '9.9.9'
    writeFileSync(path, JSON.stringify(record))
    const { outputs, log } = await rollBack(stage)
    assert.deepEqual([outputs['error-code'], outputs['changed']], ['inconsistent', 'false'], log)
    assert.match(log, /1-1\.0\.0 is version 9\.9\.9, but its plugin\.yaml says "1\.0\.0"/)
    assert.match(readFileSync(join(stage.root, 'plugins/greeter/src/main.py'), 'utf8'), /2\.0\.0/)
  })

  it('does not follow a row that names a path outside the snapshots', async t => {
    const stage = await openRetainingHost(t)
    await stage.publish('3.0.0', pluginFiles('3.0.0'))
    const path = join(stage.root, '.hub-deploy/installed.json')
    writeFileSync(path, readFileSync(path, 'utf8').replace('"1-1.0.0"', '"../../../../etc"'))
    const { outputs, log } = await rollBack(stage)
    assert.equal(outputs['error-code'], 'inconsistent', log)
    assert.equal(outputs['changed'], 'false')
  })
})
