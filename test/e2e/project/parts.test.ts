import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { type ActionResult, runAction } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { commandsIn, listHost, listOwn } from '../harness/evidence.ts'
import { assertKeptSecret, deployed, installedRows, runningParts, snapshotsOf } from '../harness/project-evidence.ts'
import { openProjectStage, PROJECT_PLAN, type ProjectStage, projectFiles } from '../harness/project-stage.ts'
import { writeFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: ProjectStage
beforeEach(async () => {
  stage = await openProjectStage()
})
afterEach(() => stage.close())

async function publish(version: string, more: Record<string, string> = {}): Promise<void> {
  await stage.publish(version, projectFiles(version, more))
}

describe('the parts of a project', () => {
  it('keep as many replaced versions as keep-snapshots says', { skip: ONLY_IN_CI }, async () => {
    for (const version of ['1.0.0', '2.0.0', '3.0.0']) {
      await publish(version)
      await deployed(stage, { 'keep-snapshots': '1' })
    }
    for (const [place, folder] of Object.entries({
      'plugin cart': 'plugins/cart',
      'service mailer': 'extensions/mailer',
    })) {
      assert.deepEqual(snapshotsOf(stage, place), ['2-2.0.0'])
      assert.deepEqual(listOwn(stage, `snapshots/${folder}`), ['2-2.0.0'])
    }
    assert.deepEqual(
      installedRows(stage)['plugin till']?.snapshots.map(row => row.project_version),
      ['2.0.0'],
    )
  })

  it('keep no replaced version when no step asks for a snapshot', async () => {
    const plan = { 'deployment/install.yaml': PROJECT_PLAN.replace(', snapshot: true', '') }
    for (const version of ['1.0.0', '2.0.0']) {
      await publish(version, plan)
      await deployed(stage)
    }
    assert.deepEqual([snapshotsOf(stage, 'plugin cart'), listOwn(stage, 'snapshots/plugins/cart')], [[], []])
  })

  it('keep the files of the host', { skip: ONLY_IN_CI }, async () => {
    await publish('1.0.0')
    await deployed(stage)
    writeFiles(stage.root, { 'plugins/cart/data/db': 'orders', 'extensions/mailer/.env': 'A=1\n' })
    await publish('2.0.0')
    await deployed(stage)
    assert.equal(readFileSync(join(stage.root, 'plugins/cart/data/db'), 'utf8'), 'orders')
    assert.equal(readFileSync(join(stage.root, 'extensions/mailer/.env'), 'utf8'), 'A=1\n')
  })

  it('that no step installs are left out, with a notice', async () => {
    const [mailer] = PROJECT_PLAN.split('\n').filter(line => line.includes('mailer'))
    await publish('1.0.0', { 'deployment/install.yaml': PROJECT_PLAN.replace(`${mailer}\n`, '') })
    const { log } = await deployed(stage)
    assert.ok(!existsSync(join(stage.root, 'extensions')))
    assert.match(commandsIn(log, 'notice').join('\n'), /extensions\/mailer/)
  })

  it('are refused in a directory other than their own, until the operator has moved them; so is a rollback', {
    skip: ONLY_IN_CI,
  }, async () => {
    await publish('1.0.0')
    await deployed(stage)
    writeFiles(stage.root, { 'plugins/cart/data/db': 'orders', 'plugins/cart.env': 'A=2\n' })
    writeFiles(stage.root, { 'integration.yaml': 'plugins: {directory: other}\n' })
    await publishAddons('2.0.0')
    moveAsAdvised(await stage.deploy())
    const moved = readHosts()
    const { log } = await deployed(stage)
    assert.match(commandsIn(log, 'warning').join('\n'), /installs its plugins in host\/addons.*loads them from other/)
    assert.deepEqual(runningParts(stage, 'host/addons'), ['2.0.0', '2.0.0', '2.0.0'])
    assert.deepEqual([readHosts(), moved['host/addons/cart.env']], [moved, 'A=2\n'])
    assert.equal((await deployed(stage)).outputs['changed'], 'false')
    moveAsAdvised(await rollBack())
    const back = await rollBack()
    assert.equal(back.outputs['version'], '1.0.0', back.log)
    assert.deepEqual(runningParts(stage), ['1.0.0', '1.0.0', '1.0.0'])
    assert.equal(readFileSync(join(stage.root, 'plugins/cart/data/db'), 'utf8'), 'orders')
    assert.deepEqual(readdirSync(join(stage.root, 'host/addons')), [])
  })

  it('are removed from the directory to which the operator has moved them', async () => {
    await publish('1.0.0')
    await deployed(stage)
    renameSync(join(stage.root, 'plugins'), join(stage.root, 'addons'))
    const plan = PROJECT_PLAN.replace(/.*id: cart.*\n/, '').replace('depends_on: [cart]', 'depends_on: []')
    const files = Object.entries(projectFiles('2.0.0', { 'deployment/install.yaml': plan }))
    const left = files.filter(([path]) => !path.startsWith('plugins/cart/'))
    const renamed = left.map(([path, text]) => [path.replace(/^plugins\//, 'addons/'), text])
    await stage.publish('2.0.0', Object.fromEntries(renamed), { pluginsDirname: 'addons' })
    await deployed(stage)
    assert.deepEqual(readdirSync(join(stage.root, 'addons')), ['till'])
  })

  for (const [what, path] of Object.entries({
    'the id of a part that runs here': 'plugins/cart/mine.py',
    'a directory that has another purpose': 'host/setup.py',
  })) {
    it(`evade no check through the directory that their manifest names: ${what}`, async () => {
      writeFiles(stage.root, { [path]: 'theirs' })
      await publishAddons('1.0.0')
      const { outputs, log } = await stage.deploy()
      assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'place_taken'], log)
      assert.equal(existsSync(join(stage.root, 'host/addons')), false)
    })
  }

  it('are installed even if integration.yaml names an impossible directory', { skip: ONLY_IN_CI }, async () => {
    writeFiles(stage.root, { 'readme.txt': '', 'integration.yaml': 'plugins: {directory: readme.txt/x}\n' })
    await publish('1.0.0')
    await deployed(stage)
    await publishAddons('2.0.0')
    moveAsAdvised(await stage.deploy())
    await deployed(stage)
  })

  it('come back in another directory with the data that they had when they were removed', {
    skip: ONLY_IN_CI,
  }, async () => {
    await publish('1.0.0')
    await deployed(stage)
    writeFiles(stage.root, { 'plugins/cart.env': 'A=theirs\n', 'plugins/cart/data/db': 'rows' })
    const plan = PROJECT_PLAN.replace(/.*id: cart.*\n/, '').replace('depends_on: [cart]', 'depends_on: []')
    const files = Object.entries(projectFiles('2.0.0', { 'deployment/install.yaml': plan }))
    await stage.publish('2.0.0', Object.fromEntries(files.filter(([path]) => !path.startsWith('plugins/cart/'))))
    await deployed(stage)
    await publishAddons('3.0.0')
    moveAsAdvised(await stage.deploy())
    await deployed(stage)
    const read = (path: string) => readFileSync(join(stage.root, 'host/addons', path), 'utf8')
    assert.deepEqual([read('cart.env'), read('cart/data/db')], ['A=theirs\n', 'rows'])
    assert.equal(existsSync(join(stage.root, 'plugins/cart.env')), false)
  })

  it('replace no file of the host in the directory of their manifest', { skip: ONLY_IN_CI }, async () => {
    writeFiles(stage.root, { 'host/addons/cart/orders': 'theirs' })
    await publishAddons('1.0.0')
    const { outputs } = await stage.deploy()
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'place_taken'])
    assert.deepEqual(readdirSync(join(stage.root, 'host/addons/cart')), ['orders'])
  })
})

async function rollBack(): Promise<ActionResult> {
  const inputs = { 'project-root': stage.root, 'project-id': 'shop' }
  return await runAction({ action: 'rollback', workspace: stage.workspace, inputs })
}

/** Runs the commands that a refusal lists. */
function moveAsAdvised({ outputs, log }: ActionResult): void {
  const before = listHost(stage.root)
  assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'place_taken'], log)
  assert.deepEqual(listHost(stage.root), before)
  const [, commands] = /run this again: (.*)$/m.exec(log) ?? []
  execFileSync('sh', ['-ec', commands ?? 'false'])
}

/** Returns the files that belong to the host. */
function readHosts(): Record<string, string> {
  const paths = ['host/addons/cart.env', 'host/addons/cart/data/db']
  return Object.fromEntries(paths.map(path => [path, readFileSync(join(stage.root, path), 'utf8')]))
}

async function publishAddons(version: string): Promise<void> {
  const files = Object.entries(projectFiles(version, { 'plugins/cart/.env.template': 'A=1\n' }))
  const renamed = Object.fromEntries(files.map(([path, text]) => [path.replace(/^plugins\//, 'host/addons/'), text]))
  const env =
    '  - {id: env, action: write_env, plugin: cart, from: host/addons/cart/.env.template, depends_on: [cart]}\n'
  const plan = { 'deployment/install.yaml': PROJECT_PLAN + env }
  await stage.publish(version, { ...renamed, ...plan }, { pluginsDirname: 'host/addons' })
}

describe('the settings of a project', () => {
  const files = {
    'plugins/cart/plugin.yaml': 'name: cart\nversion: "1.0.0"\nenvironment: {required: [TOKEN]}\n',
    'plugins/cart/.env.template': 'COLOUR=blue\nTOKEN=\n',
    'deployment/install.yaml': `${PROJECT_PLAN}  - {id: env, action: write_env, plugin: cart, from: plugins/cart/.env.template, depends_on: [mailer]}\n`,
  }

  it('are seeded from the input when there are none, and then belong to the host', async () => {
    await publish('1.0.0', files)
    await deployed(stage, { settings: 'TOKEN=of-this-host' })
    const path = join(stage.root, 'plugins/cart.env')
    assert.equal(readFileSync(path, 'utf8'), 'COLOUR=blue\nTOKEN=of-this-host\n')
    writeFiles(stage.root, { 'plugins/cart.env': 'TOKEN=other\n' })
    await publish('2.0.0', files)
    await deployed(stage)
    assert.equal(readFileSync(path, 'utf8'), 'TOKEN=other\n')
  })

  it('that lack a required key cause a rollback of all parts', async () => {
    await publish('1.0.0', files)
    const { exitCode, outputs, log } = await stage.deploy()
    assert.deepEqual([exitCode, outputs['outcome'], outputs['failed-step']], [1, 'rolled_back', 'env'], log)
    assert.deepEqual(listHost(stage.root), {})
  })
})

describe('the plugins of a project that their host wants signed', () => {
  it('each get the signature that the host framework computes, and no other plugin does', async () => {
    const yamlOf = (name: string, mode: string) => `name: ${name}\nversion: "7.0.0"\nexecution_mode: ${mode}\n`
    const secret = 'secret of the host'
    await publish('1.0.0', {
      'plugins/cart/plugin.yaml': yamlOf('cart', 'trusted'),
      'plugins/till/plugin.yaml': yamlOf('till', 'EPHEMERAL'),
      'plugins/free/plugin.yaml': yamlOf('free', 'sandboxed'),
      'deployment/install.yaml': `${PROJECT_PLAN}  - {id: free, action: install_plugin, plugin: free}\n`,
    })
    const { log } = await deployed(stage, { 'plugin-secret-key': secret })
    for (const [id, mode, main] of [
      ['cart', 'trusted', 'cart 1.0.0'],
      ['till', 'EPHEMERAL', 'till in 1.0.0'],
    ] as const) {
      const { digest } = JSON.parse(readFileSync(join(stage.root, 'plugins', id, 'plugin.sig'), 'utf8'))
      const signed = `${yamlOf(id, mode)}src/main.py\0print("${main}")\n\0`
      assert.equal(digest, createHmac('sha256', secret).update(signed).digest('hex'))
    }
    assert.ok(!existsSync(join(stage.root, 'plugins/free/plugin.sig')))
    assertKeptSecret(stage, [log], [], [secret])
    assert.equal((await deployed(stage, { 'plugin-secret-key': secret })).outputs['changed'], 'false')
  })
})
