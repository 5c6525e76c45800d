import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { runAction } from '../../../local/runner.ts'
import { missingTools, sampled, whyRightsAreLeftToCi } from '../../extent.ts'
import { commandsIn } from '../harness/evidence.ts'
import { runRecover } from '../harness/processes.ts'
import { openProjectStage, type ProjectStage, projectFiles } from '../harness/project-stage.ts'
import { openStage, PLUGIN_PLAN, planWith, pluginFiles, rollBack, type Stage, writeFiles } from '../harness/stage.ts'

const NEEDS_ROOT = process.getuid?.() !== 0 && 'needs root'
const KILLING = join(import.meta.dirname, '../harness/kill-before-rename.mjs')

/** A group that no process of the tests is in. */
const GAMES = 60
const FIRST = { 'data/kept.txt': 'the host keeps this' }

function setGroup(shelf: string): void {
  chownSync(shelf, 0, GAMES)
  chmodSync(shelf, 0o2755)
}

function setAcl(shelf: string): void {
  execFileSync('setfacl', ['-d', '-m', 'u:1:rwx,g:2:r-x,o::---', shelf])
}

/** What a directory of parts may give to what is created in it. */
const SHELVES: Record<string, (shelf: string) => void> = {
  'a setgid group': setGroup,
  'a default ACL': setAcl,
  'a setgid group and a default ACL': shelf => {
    setGroup(shelf)
    setAcl(shelf)
  },
  'nothing, although the project root has a default ACL': shelf => execFileSync('setfacl', ['-k', shelf]),
}
const WHY_NOT = whyRightsAreLeftToCi() || NEEDS_ROOT || missingTools('setfacl', 'getfacl')

/** Creates a shelf in a project root that has a default ACL itself. */
function makeShelf(root: string, shelf: string, prepare: (shelf: string) => void): void {
  mkdirSync(root, { recursive: true, mode: 0o755 })
  execFileSync('setfacl', ['-d', '-m', 'u:3:rwx', root])
  const path = join(root, shelf)
  mkdirSync(path, { mode: 0o755 })
  chmodSync(path, 0o755)
  execFileSync('setfacl', ['-b', path])
  prepare(path)
}

/** Lists owner, group, mode and ACL of everything in a tree. */
function accessIn(tree: string): string[] {
  return ['.', ...readdirSync(tree, { recursive: true, encoding: 'utf8' })].sort().map(path => {
    const { uid, gid, mode } = statSync(join(tree, path))
    const acl = execFileSync('getfacl', ['-c', '-n', '-p', join(tree, path)], { encoding: 'utf8' })
    return [path, uid, gid, mode.toString(8), acl.trim().replaceAll('\n', ' ')].join(' ')
  })
}

/**
 * Asserts that an installed tree is as if its directories had been created in its directory with mode 0755, and its files
 * with mode 0644.
 */
function assertInherited(root: string, part: string): void {
  const [tree, native] = [join(root, part), join(root, `${part}-native`)]
  const umask = process.umask(0o022)
  mkdirSync(native, 0o755)
  for (const entry of readdirSync(tree, { recursive: true, encoding: 'utf8' }).sort()) {
    if (statSync(join(tree, entry)).isDirectory()) mkdirSync(join(native, entry), 0o755)
    else writeFileSync(join(native, entry), '', { mode: 0o644 })
  }
  process.umask(umask)
  const expected = accessIn(native)
  rmSync(native, { recursive: true })
  assert.deepEqual(accessIn(tree), expected)
}

async function assertNoDrift({ workspace, root }: Pick<Stage, 'workspace' | 'root'>): Promise<void> {
  const { outputs, log } = await runAction({ action: 'status', workspace, inputs: { 'project-root': root } })
  assert.equal(outputs['drift'], 'false', log)
}

async function openShelf(t: TestContext, prepare: (shelf: string) => void): Promise<Stage> {
  const stage = await openStage()
  t.after(() => stage.close())
  makeShelf(stage.root, 'plugins', prepare)
  return stage
}

describe('a plugin in a shelf', { skip: WHY_NOT }, () => {
  for (const [what, prepare] of Object.entries(SHELVES)) {
    it(`inherits ${what}, as what is created there does`, async t => {
      const stage = await openShelf(t, prepare)
      const { root } = stage
      for (const version of ['1.0.0', '1.1.0']) {
        await stage.publish(version, pluginFiles(version))
        const { exitCode, log, outputs } = await stage.deploy()
        assert.deepEqual([exitCode, outputs['outcome'], commandsIn(log, 'warning')], [0, 'success', []], log)
        assertInherited(root, 'plugins/greeter')
        assert.deepEqual(readdirSync(join(root, 'plugins')), ['greeter'])
        await assertNoDrift(stage)
      }
      const again = await stage.deploy()
      assert.deepEqual([again.outputs['outcome'], again.outputs['changed']], ['success', 'false'], again.log)
      const { exitCode, log } = await rollBack(stage)
      assert.equal(exitCode, 0, log)
      assert.match(readFileSync(join(root, 'plugins/greeter/plugin.yaml'), 'utf8'), /1\.0\.0/)
      assertInherited(root, 'plugins/greeter')
      await assertNoDrift(stage)
    })
  }

  it('still has everything after a failed update, and what a kept path needs inherits it too', async t => {
    const stage = await openShelf(t, SHELVES['a setgid group and a default ACL'] as typeof setGroup)
    const { root } = stage
    await stage.publish('1.0.0', pluginFiles('1.0.0', FIRST))
    const keep = { 'keep-paths': 'data/kept.txt' }
    assert.equal((await stage.deploy(keep)).exitCode, 0)
    const before = accessIn(join(root, 'plugins/greeter'))
    await stage.publish('1.1.0', pluginFiles('1.1.0'))
    stage.writePlan(planWith('action: write_env, plugin: greeter, from: plugins/greeter/run.template'))
    const failed = await stage.deploy(keep)
    assert.equal(failed.exitCode, 1, failed.log)
    assert.deepEqual(accessIn(join(root, 'plugins/greeter')), before)
    stage.writePlan(PLUGIN_PLAN)
    const updated = await stage.deploy(keep)
    assert.equal(updated.outputs['version'], '1.1.0', updated.log)
    assertInherited(root, 'plugins/greeter')
  })

  it('counts as unchanged in a dry run, and in other bytes of the same version, although the ACL hides it from others', async t => {
    const stage = await openShelf(t, setAcl)
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    assert.equal((await stage.deploy()).exitCode, 0)
    await stage.publish('1.1.0', pluginFiles('1.1.0', { 'run.sh': 'echo' }))
    const { log } = await stage.deploy({ 'dry-run': 'true' })
    assert.match(log, /2 files? changed, 1 added|would .*(2 changed|change 2)/, log)
    assert.deepEqual(readdirSync(join(stage.root, 'plugins')), ['greeter'])
    execFileSync('setfacl', ['-k', join(stage.root, 'plugins')])
    await stage.publish('1.0.0', pluginFiles('1.0.0'), { replace: true })
    const same = await stage.deploy({ version: '1.0.0' })
    assert.deepEqual([same.exitCode, same.outputs['error-code']], [0, ''], same.log)
  })

  it('inherits from the project root while its shelf is missing', async t => {
    const stage = await openStage()
    t.after(() => stage.close())
    mkdirSync(stage.root, { recursive: true, mode: 0o755 })
    setGroup(stage.root)
    setAcl(stage.root)
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    const { exitCode, log } = await stage.deploy()
    assert.equal(exitCode, 0, log)
    assertInherited(stage.root, 'plugins')
    assertInherited(stage.root, 'plugins/greeter')
  })
})

describe('the parts of a project', { skip: WHY_NOT }, () => {
  it('inherit from the shelf that each of them is in', async t => {
    const stage: ProjectStage = await openProjectStage()
    t.after(() => stage.close())
    makeShelf(stage.root, 'plugins', setGroup)
    makeShelf(stage.root, 'extensions', setAcl)
    for (const version of ['1.0.0', '1.1.0']) {
      await stage.publish(version, projectFiles(version))
      const { exitCode, log } = await stage.deploy()
      assert.equal(exitCode, 0, log)
      for (const part of ['plugins/cart', 'plugins/till', 'extensions/mailer']) assertInherited(stage.root, part)
      await assertNoDrift(stage)
    }
  })
})

/** Preloaded into an action: replaces the action's directory in the shelf right before it is moved. */
const SWAPPING = `data:text/javascript,${encodeURIComponent(`
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
const rename = fs.renameSync
fs.renameSync = (from, to) => {
  if (String(from).includes('/_hub-deploy-')) {
    fs.rmdirSync(from)
    rename(process.env.SWAP_TO, from)
    fs.renameSync = rename
    syncBuiltinESMExports()
  }
  rename(from, to)
}
syncBuiltinESMExports()`)}`

describe('a shelf that another user can write to', () => {
  it('is left as it is if that user replaces the directory that a run creates in it', async t => {
    const stage = await openStage()
    t.after(() => stage.close())
    writeFiles(stage.root, { 'plugins/other/file': '' })
    const planted = join(stage.root, 'plugins/planted')
    writeFiles(planted, { file: 'of the other user' })
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    const { outputs, log } = await stage.deploy({}, { env: { NODE_OPTIONS: `--import=${SWAPPING}`, SWAP_TO: planted } })
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'unsafe_host'], log)
    const [moved = ''] = readdirSync(join(stage.root, 'plugins'))
    assert.equal(readFileSync(join(stage.root, 'plugins', moved, 'file'), 'utf8'), 'of the other user')
  })
})

describe('a run that is killed while it borrows the inheritance of a shelf', () => {
  for (const how of sampled(['the next run', 'recover.js'], 1)) {
    it(`leaves an empty directory, which ${how} removes`, async t => {
      const stage = await openStage()
      t.after(() => stage.close())
      writeFiles(stage.root, { 'plugins/other/file': '' })
      await stage.publish('1.0.0', pluginFiles('1.0.0'))
      await stage.deploy({}, { env: { NODE_OPTIONS: `--import=${KILLING}`, KILL_FROM: '_hub-deploy-' } })
      const shelf = join(stage.root, 'plugins')
      const [left = ''] = readdirSync(shelf)
      assert.match(left, /^_hub-deploy-/)
      assert.deepEqual([statSync(join(shelf, left)).mode & 0o777, readdirSync(join(shelf, left))], [0o700, []])
      if (how === 'recover.js') assert.equal(runRecover(['--project-root', stage.root]).status, 0)
      else assert.equal((await stage.deploy()).exitCode, 0)
      assert.deepEqual(readdirSync(shelf), how === 'recover.js' ? ['other'] : ['greeter', 'other'])
      assert.deepEqual(readdirSync(join(stage.root, '.hub-deploy/staging')), [])
    })
  }
})
