import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import type { PlanStep } from '../../../src/core/plan/step.ts'
import { installPath } from '../../../src/install/host/layout.ts'
import type { PartEnvironment, StepResult } from '../../../src/install/steps/context.ts'
import { warnOfMissingEnv, warnOfUnknownSettings } from '../../../src/install/steps/idle.ts'
import { writeEnv } from '../../../src/install/steps/settings.ts'
import type { Transaction } from '../../../src/install/transaction/transaction.ts'
import { writeTree } from '../../folders.ts'
import { contextOf, deploymentOf, partOf } from '../prepared-deployment.ts'
import { collectLog, prepareTemporaryHost } from '../prepared-host.ts'
import { recordTreeAt, treeOf, writeTreeOf } from '../trees/recorded-tree.ts'

/** The differences from writing `plugins/x/.env.template` as settings, with no required and no given settings. */
interface Setting {
  from?: string
  environment?: PartEnvironment
  settings?: Record<string, string>
}

interface Scene {
  root: string
  target: string
  template: string
  transaction: Transaction
  write(setting?: Setting): Promise<StepResult['status']>
}

async function makeScene(t: TestContext, template = 'A=1\n'): Promise<Scene> {
  const layout = await prepareTemporaryHost(t)
  writeTree(layout.root, { 'plugins/x/.env.template': template })
  const part = partOf(layout)
  const context = await contextOf(t, deploymentOf(layout))
  return {
    root: layout.root,
    target: join(layout.root, 'plugins/x.env'),
    template: join(layout.root, 'plugins/x/.env.template'),
    transaction: context.transaction,
    async write({ from = 'plugins/x/.env.template', environment = part.environment, settings = {} } = {}) {
      const deployment = deploymentOf(layout, { request: { settings: new Map(Object.entries(settings)) } })
      return (await writeEnv({ ...context, deployment }, { ...part, environment }, from)).status
    },
  }
}

function stepFailed(error: unknown): boolean {
  return error instanceof DeploymentError && error.code === 'step_failed'
}

describe('writeEnv', () => {
  it('refuses a template whose bytes differ from the recorded ones', async t => {
    const layout = await prepareTemporaryHost(t)
    const [path, files] = [installPath(layout, partOf(layout)), { 'conf/env': 'A=1\n', 'conf/other': 'A=2\n' }]
    writeTreeOf(path, files)
    const tree = await recordTreeAt(layout, path, treeOf(files))
    const context = await contextOf(t, deploymentOf(layout))
    context.results.set('plugins/x', { tree })
    writeTree(path, { 'conf/env': 'LD_PRELOAD=/tmp/evil.so\n' })
    await assert.rejects(writeEnv(context, partOf(layout), 'plugins/x/conf/env'), stepFailed)
    assert.ok(!existsSync(join(layout.root, 'plugins/x.env')))
    const written = await writeEnv(context, partOf(layout), 'plugins/x/conf/other')
    assert.deepEqual(written, { status: 'done', did: 'x.env written' })
  })

  it('accepts the recorded template of another part of the same plan, and verifies it by the record of that part', async t => {
    const layout = await prepareTemporaryHost(t)
    const part = partOf(layout)
    const files = { 'conf/env': 'A=1\n' }
    writeTreeOf(installPath(layout, part), files)
    const tree = await recordTreeAt(layout, installPath(layout, part), treeOf(files))
    const context = await contextOf(t, deploymentOf(layout))
    context.results.set('plugins/x', { tree }).set('plugins/y', { tree: { tree_digest: null } })
    const written = await writeEnv(context, { ...part, id: 'y' }, 'plugins/x/conf/env')
    assert.deepEqual(written, { status: 'done', did: 'y.env written' })
    writeTree(installPath(layout, part), { 'conf/env': 'LD_PRELOAD=/tmp/evil.so\n' })
    await assert.rejects(writeEnv(context, { ...part, id: 'z' }, 'plugins/x/conf/env'), stepFailed)
  })

  for (const [given, end] of [
    [{}, 'its template.'],
    [{ A: 's3cret' }, 'its template, with A from the settings given as input.'],
    [{ A: 's3cret', B: 's3cret', C: '' }, 'its template, with A from the settings given as input.'],
  ] as const) {
    it(`logs which settings it used, without their values: ${Object.keys(given).join(', ') || 'none'}`, async t => {
      const layout = await prepareTemporaryHost(t)
      writeTree(layout.root, { 'plugins/x/.env.template': 'A=1\nC=1\n' })
      const [log, request] = [collectLog(), { settings: new Map(Object.entries(given)) }]
      await writeEnv(
        await contextOf(t, deploymentOf(layout, { request, tools: { log } })),
        partOf(layout),
        'plugins/x/.env.template',
      )
      assert.deepEqual(log.lines, [`info ${layout.root}/plugins/x.env was written from ${end}`])
    })
  }

  for (const umask of [0o000, 0o077]) {
    it(`writes the settings 0600 under umask ${umask.toString(8)}, and removes them on a rollback`, async t => {
      const scene = await makeScene(t, 'TOKEN=\n')
      const before = process.umask(umask)
      t.after(() => process.umask(before))
      assert.equal(await scene.write({ settings: { TOKEN: 's3cret' } }), 'done')
      assert.equal(readFileSync(scene.target, 'utf8'), 'TOKEN=s3cret\n')
      assert.equal(statSync(scene.target).mode & 0o777, 0o600)
      await scene.transaction.undo()
      assert.ok(!existsSync(scene.target))
    })
  }

  it('neither changes an existing file nor removes it on a rollback', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.target, 'A=mine', { mode: 0o640 })
    assert.equal(
      await scene.write({ environment: { required: ['A'], optional: ['B'] }, settings: { A: 'x', B: 'y' } }),
      'unchanged',
    )
    await scene.transaction.undo()
    assert.equal(readFileSync(scene.target, 'utf8'), 'A=mine')
    assert.equal(statSync(scene.target).mode & 0o777, 0o640)
  })

  it('fails on an existing file without a required key, and does not change it', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.target, 'A=\n')
    await assert.rejects(
      scene.write({ environment: { required: ['A'], optional: [] }, settings: { A: 'x' } }),
      stepFailed,
    )
    assert.equal(readFileSync(scene.target, 'utf8'), 'A=\n')
  })

  it('reads existing settings through a symlink of the host, and changes neither of them', async t => {
    const scene = await makeScene(t)
    const theirs = join(scene.root, 'theirs')
    writeFileSync(theirs, 'A=mine\n')
    symlinkSync(theirs, scene.target)
    assert.equal(await scene.write({ environment: { required: ['A'], optional: [] } }), 'unchanged')
    assert.deepEqual([readFileSync(theirs, 'utf8'), readlinkSync(scene.target)], ['A=mine\n', theirs])
  })

  it('explains in a rollback how to set a required key, because a rollback has no input for settings', async t => {
    const layout = await prepareTemporaryHost(t)
    writeTree(layout.root, { 'plugins/x/.env.template': 'A=\n' })
    const context = await contextOf(t, deploymentOf(layout))
    await context.deployment.record.update({ rollback_of: '2.0.0' })
    const part = { ...partOf(layout), environment: { required: ['A'], optional: [] } }
    await assert.rejects(writeEnv(context, part, 'plugins/x/.env.template'), {
      code: 'step_failed',
      message: /a rollback has no input for settings: create the part's settings file by hand/,
    })
  })

  const inTheWay: Record<string, (scene: Scene) => void> = {
    'a dangling symlink': ({ root, target }) => symlinkSync(join(root, 'elsewhere'), target),
    'a pipe without a writer': ({ target }) => execFileSync('mkfifo', [target]),
    'a symlink to such a pipe': ({ root, target }) => {
      execFileSync('mkfifo', [join(root, 'pipe')])
      symlinkSync(join(root, 'pipe'), target)
    },
    'a directory': ({ target }) => mkdirSync(target),
  }
  for (const [name, put] of Object.entries(inTheWay)) {
    it(`fails on ${name} at the path of the settings, and writes nothing`, async t => {
      const scene = await makeScene(t)
      put(scene)
      await assert.rejects(scene.write(), stepFailed)
      assert.ok(!existsSync(join(scene.root, 'elsewhere')))
      assert.equal(scene.transaction.changed, false)
    })
  }

  const unusable: Record<string, (scene: Scene) => Setting> = {
    'a template that does not exist': () => ({ from: 'plugins/x/none' }),
    'a template that is a directory': () => ({ from: 'plugins/x' }),
    'a template that is a symlink': ({ root }) => {
      symlinkSync('/etc/hostname', join(root, 'plugins/x/link'))
      return { from: 'plugins/x/link' }
    },
    'a template that is a pipe': ({ root }) => {
      execFileSync('mkfifo', [join(root, 'plugins/x/pipe')])
      return { from: 'plugins/x/pipe' }
    },
    'a template larger than 256 KiB': ({ template }) => {
      truncateSync(template, 256 * 1024 + 1)
      return {}
    },
    'a required key without a value': () => ({ environment: { required: ['GONE'], optional: [] } }),
    'a value with a line break': () => ({ settings: { A: 'x\nB=y' } }),
  }
  for (const [name, prepare] of Object.entries(unusable)) {
    it(`fails on ${name} and writes nothing`, async t => {
      const scene = await makeScene(t)
      await assert.rejects(scene.write(prepare(scene)), stepFailed)
      assert.ok(!existsSync(scene.target))
      assert.equal(scene.transaction.changed, false)
    })
  }
})

const TEMPLATE = 'plugins/x/.env.template'
const YAML = 'name: x\nenvconfiguration: {inject: true}\n'

/** A host with an installed plugin whose settings are injected from `envFile`, and with these other files. */
async function openScene(t: TestContext, files: Record<string, string> = {}, envFile = '.env') {
  const layout = await prepareTemporaryHost(t)
  writeTree(layout.root, { [TEMPLATE]: 'A=1\nB=\n', 'plugins/x/plugin.yaml': YAML, ...files })
  const log = collectLog()
  const settings = new Map([['B', 'of this host']])
  const deployment = deploymentOf(layout, { tools: { log }, request: { settings } })
  const part = { ...partOf(layout), environment: { required: ['B'], optional: [], envFile } }
  const context = await contextOf(t, deployment)
  const path = join(layout.root, 'plugins/x', envFile)
  return { layout, log, part, context, path, write: async () => (await writeEnv(context, part, TEMPLATE)).did }
}

function injectionFailed(error: unknown): boolean {
  return error instanceof DeploymentError && error.code === 'step_failed' && error.message.includes('plugins/x/.env')
}

describe('the settings that a host framework injects', () => {
  it('are the same as those next to the plugin, 0600, and are removed with them on a rollback', async t => {
    const { context, path, write } = await openScene(t)
    assert.equal(await write(), 'x.env and plugins/x/.env written')
    assert.equal(readFileSync(path, 'utf8'), "A=1\nB='of this host'\n")
    assert.deepEqual(
      [statSync(path).mode & 0o777, readFileSync(`${join(path, '..')}.env`, 'utf8')],
      [0o600, "A=1\nB='of this host'\n"],
    )
    await context.transaction.undo()
    assert.deepEqual([existsSync(path), existsSync(`${join(path, '..')}.env`)], [false, false])
  })

  it('are a copy of existing settings, including all text that the operator has added', async t => {
    const { path, write } = await openScene(t, { 'plugins/x.env': '# mine\nB=2\n' })
    assert.equal(await write(), 'x.env already exists and was left unchanged; plugins/x/.env written')
    assert.equal(readFileSync(path, 'utf8'), '# mine\nB=2\n')
    assert.equal(await write(), 'x.env already exists and was left unchanged')
  })

  it("are never changed if they are the operator's own, nor removed on a rollback", async t => {
    const { context, path, write } = await openScene(t, { 'plugins/x/.env': 'B=mine\n' })
    assert.equal(await write(), 'x.env written')
    await context.transaction.undo()
    assert.equal(readFileSync(path, 'utf8'), 'B=mine\n')
  })

  it('cause a warning with the names of their keys if their values differ from those next to the plugin', async t => {
    const { log, write } = await openScene(t, {
      'plugins/x/.env': 'B=secret-1\nA=1\n',
      'plugins/x.env': 'A=1\nB=secret-2\n',
    })
    assert.equal(await write(), 'x.env already exists and was left unchanged')
    const warnings = log.lines.filter(line => line.startsWith('warning'))
    assert.equal(warnings.length, 1)
    assert.match(warnings[0] ?? '', /plugins\/x\/\.env sets B to different values than .*plugins\/x\.env/)
    assert.doesNotMatch(warnings.join(), /secret/)
  })

  it('fail the step if they exist and lack a required key, or cannot be read', async t => {
    const { write } = await openScene(t, { 'plugins/x.env': 'B=2\n', 'plugins/x/.env': 'A=1\n' })
    await assert.rejects(write(), injectionFailed)
    const other = await openScene(t, { 'plugins/x.env': 'B=2\n' })
    symlinkSync('nowhere', other.path)
    await assert.rejects(other.write(), injectionFailed)
  })

  it('are in the file that env_file names, whose folders are created and removed on a rollback', async t => {
    const { context, layout, path, write } = await openScene(t, {}, 'etc/app/settings.env')
    assert.equal(await write(), 'x.env and plugins/x/etc/app/settings.env written')
    assert.deepEqual([readFileSync(path, 'utf8'), statSync(path).mode & 0o777], ["A=1\nB='of this host'\n", 0o600])
    await context.transaction.undo()
    assert.deepEqual(readdirSync(join(layout.root, 'plugins/x')).sort(), ['.env.template', 'plugin.yaml'])
  })

  it('are never written through a symlink in the place of a folder of env_file', async t => {
    const { layout, write } = await openScene(t, {}, 'etc/settings.env')
    mkdirSync(join(layout.root, 'elsewhere'))
    symlinkSync('../../elsewhere', join(layout.root, 'plugins/x/etc'))
    await assert.rejects(write(), { code: 'step_failed', message: /plugins\/x\/etc would be in a file or symlink/ })
    assert.deepEqual(readdirSync(join(layout.root, 'elsewhere')), [])
  })

  const entryPoints = { 'src/main.py': true, 'main.py': false }
  for (const [entryPoint, isWritten] of Object.entries(entryPoints)) {
    it(`are ${isWritten ? '' : 'not '}written into a signed plugin with the entry point ${entryPoint}`, async t => {
      const yaml = `${YAML}execution_mode: trusted\nentry_point: ${entryPoint}\n`
      const { log, path, write } = await openScene(t, { 'plugins/x/plugin.yaml': yaml, 'plugins/x/plugin.sig': '{}' })
      await write()
      assert.equal(existsSync(path), isWritten)
      assert.equal(/plugin\.sig may cover that file/.test(log.lines.join('\n')), !isWritten)
    })
  }

  it('cause a warning if they are missing and no step writes them', async t => {
    const { context, log, part, path } = await openScene(t)
    const order = { ...context.order, parts: [part], steps: [] }
    warnOfMissingEnv({ deployment: context.deployment, order })
    assert.match(log.lines.join('\n'), /^warning plugins\/x gets its settings from .*plugins\/x\/\.env only/)
    writeFileSync(path, '')
    warnOfMissingEnv({ deployment: context.deployment, order })
    assert.equal(log.lines.length, 1)
  })
})

describe('a setting given as input that no settings file has', () => {
  const steps = [{ action: 'write_env', plugin: 'x', from: 'plugins/x/env' }] as unknown as PlanStep[]

  /** Returns the warnings for parts x and y, if only x has a step that writes its settings, unless `all` have one. */
  async function warnings(t: TestContext, files: Record<string, string>, all = false): Promise<string[]> {
    const layout = await prepareTemporaryHost(t)
    writeTree(layout.root, files)
    const [log, request] = [
      collectLog(),
      {
        settings: new Map([
          ['TOKN', 's3cret'],
          ['B', ''],
        ]),
      },
    ]
    const context = await contextOf(t, deploymentOf(layout, { request, tools: { log } }))
    const part = partOf(layout)
    const more = all ? [{ ...steps[0], plugin: 'y', from: 'plugins/y/env' } as PlanStep] : []
    const order = { ...context.order, parts: [part, { ...part, id: 'y' }], steps: [...steps, ...more] }
    warnOfUnknownSettings({ deployment: context.deployment, order })
    return log.lines
  }

  it('causes a warning that names it, and not its value', async t => {
    const [line, ...more] = await warnings(t, { 'plugins/x.env': 'TOKEN=\nB=1\n', 'plugins/y.env': 'TOKN=\n' })
    assert.match(line ?? '', /^warning The settings given as input name TOKN, which no template/)
    assert.deepEqual(more, [])
  })

  it('causes none if another part of the plan has it, or if a settings file cannot be read', async t => {
    const both = { 'plugins/x.env': 'TOKEN=\n', 'plugins/y.env': 'TOKN=\nB=\n' }
    assert.deepEqual(await warnings(t, both, true), [])
    assert.deepEqual(await warnings(t, { 'plugins/x.env/a': '' }), [])
  })
})
