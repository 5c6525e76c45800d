import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { type ActionResult, runAction } from '../../../local/runner.ts'
import { waitUntil } from '../../clocks.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { writeTree } from '../../folders.ts'
import { commandsIn, listOwn } from '../harness/evidence.ts'
import { bindMount, run as runProgram, whyNoMounting } from '../harness/mounts.ts'
import { runRecover, signal } from '../harness/processes.ts'
import { openProjectStage, projectFiles } from '../harness/project-stage.ts'
import { openRetainingHost, planWith, pluginFiles, rollBack, type Stage } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const PRELOADED = join(import.meta.dirname, '../harness/signal-at-file.mjs')
/** A directory of 3.0.0. The plan names a file that 3.0.0 does not have, so 3.0.0 is refused after its extraction. */
const MARKER = '/only-in-3.0.0'
const REFUSED_PLAN = 'action: write_env, plugin: greeter, from: plugins/greeter/missing.template'
const MORE_FILES = 5000

/** A host with 2.0.0 and 1.0.0. The hub also has 3.0.0. */
async function openHost(t: TestContext): Promise<Stage> {
  const stage = await openRetainingHost(t)
  await stage.publish('3.0.0', pluginFiles('3.0.0', { [`${MARKER.slice(1)}/file`]: '' }))
  return stage
}

interface RefusedRun {
  readonly pid: number
  readonly result: Promise<ActionResult>
}

/** Deploys 3.0.0. The run gets the signal when it begins to remove a directory of the refused tree. */
function startRefused(t: TestContext, stage: Stage, name: NodeJS.Signals): RefusedRun {
  stage.writePlan(planWith(REFUSED_PLAN))
  let pid = 0
  const result = stage.deploy(
    { version: '3.0.0' },
    {
      env: { NODE_OPTIONS: `--import=${PRELOADED}`, SIGNAL: name, AT_FILE: MARKER },
      onStart(started) {
        pid = started
      },
    },
  )
  // A stopped process would keep the test's process alive.
  t.after(() => signal(pid, 'SIGKILL'))
  return { pid, result }
}

function isStopped(pid: number): boolean {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  return /^\) T/.test(stat.slice(stat.lastIndexOf(')')))
}

function ended({ exitCode, outputs }: ActionResult): unknown[] {
  return [exitCode, outputs['outcome'], outputs['error-code'], outputs['running-version']]
}

const REFUSED = [1, 'failed', 'invalid_plan', '2.0.0']

describe('a run that removes the tree that it has refused', () => {
  it('has released the lock, so that another run succeeds meanwhile, and hears a cancel', {
    skip: ONLY_IN_CI,
  }, async t => {
    const stage = await openHost(t)
    const first = startRefused(t, stage, 'SIGSTOP')
    await waitUntil('the first run removes its tree', () => isStopped(first.pid))
    const [name = ''] = listOwn(stage, 'trash')
    assert.match(name, /^[0-9a-f-]{36}$/)
    assert.ok(!existsSync(join(stage.root, '.hub-deploy/lock')))
    assert.deepEqual([listOwn(stage, 'staging'), listOwn(stage, 'outbox')], [[], []])
    // Only now, so that no other run has to write them.
    const folder = join(stage.root, '.hub-deploy/trash', name, 'tree', MARKER)
    for (let index = 0; index < MORE_FILES; index++) writeFileSync(join(folder, `${index}`), '')
    signal(first.pid, 'SIGINT')
    signal(first.pid, 'SIGCONT')
    const result = await first.result
    assert.deepEqual(ended(result), REFUSED, result.log)
    assert.equal(commandsIn(result.log, 'error').length, 1, result.log)
    assert.ok(readdirSync(folder).length > 0, 'the cancelled run must have left some files')
    stage.writePlan(planWith())
    const next = await stage.deploy({ version: '1.0.0' })
    assert.deepEqual(ended(next), [0, 'success', '', '1.0.0'], next.log)
    assert.deepEqual(listOwn(stage, 'trash'), [])
  })

  it('does not keep another run waiting', async t => {
    const stage = await openHost(t)
    const first = startRefused(t, stage, 'SIGSTOP')
    await waitUntil('the first run removes its tree', () => isStopped(first.pid))
    stage.writePlan(planWith())
    const second = await stage.deploy({ version: '1.0.0', 'lock-timeout-seconds': '0' })
    assert.deepEqual(ended(second), [0, 'success', '', '1.0.0'], second.log)
    assert.deepEqual(listOwn(stage, 'trash'), [])
    // Everything that the first run was removing is gone by now.
    signal(first.pid, 'SIGCONT')
    const result = await first.result
    assert.deepEqual(ended(result), REFUSED, result.log)
    assert.deepEqual(commandsIn(result.log, 'warning'), [])
  })

  it('leaves the rest to its post step if it is killed', async t => {
    const stage = await openHost(t)
    const killed = await startRefused(t, stage, 'SIGKILL').result
    assert.equal(killed.signal, 'SIGKILL', killed.log)
    assert.equal(listOwn(stage, 'trash').length, 1)
    const post = await stage.deploy({ version: '3.0.0' }, { phase: 'post', state: killed.state })
    assert.deepEqual([post.exitCode, listOwn(stage, 'trash')], [0, []], post.log)
  })
})

/** Puts what an earlier run might have left, or another process planted, into the trash of a host. */
function fillTrash({ root, folder }: Pick<Stage, 'root' | 'folder'>): string {
  const trash = join(root, '.hub-deploy/trash')
  const outside = join(folder, 'outside')
  writeTree(outside, { precious: 'data' })
  writeTree(trash, { 'tree/inner/file': '', file: '' })
  for (const name of ['link', 'tree/link']) symlinkSync(outside, join(trash, name))
  mkdirSync(Buffer.concat([Buffer.from(`${trash}/`), Buffer.from([0xff, 0xfe])]))
  return outside
}

describe('what an earlier run left in the trash', () => {
  const EMPTYING: Record<string, (stage: Stage) => Promise<unknown>> = {
    'a deployment': async stage => await stage.deploy({ version: '2.0.0' }),
    'a deployment that is refused for its inputs': async stage => await stage.deploy({ version: 'not a version' }),
    'a rollback': async stage => await rollBack(stage),
    'recover.js': async stage => runRecover(['--project-root', stage.root]),
    'a project': async stage => {
      const project = await openProjectStage()
      await project.publish('1.0.0', projectFiles('1.0.0'))
      await project.deploy({ 'project-root': stage.root }).finally(() => project.close())
    },
  }
  for (const [what, run] of sampled(Object.entries(EMPTYING), 2)) {
    it(`is removed by ${what}, and nothing behind a symlink is`, async t => {
      const stage = await openRetainingHost(t)
      const outside = fillTrash(stage)
      await run(stage)
      assert.deepEqual([listOwn(stage, 'trash'), readdirSync(outside)], [[], ['precious']])
    })
  }

  const LEAVING: Record<string, (stage: Stage) => Promise<unknown>> = {
    'a dry run': async stage => await stage.deploy({ 'dry-run': 'true' }),
    'the status action': async ({ workspace, root }) =>
      await runAction({ action: 'status', workspace, inputs: { 'project-root': root } }),
    'the verify action': async stage => await stage.verify(),
  }
  for (const [what, run] of sampled(Object.entries(LEAVING), 1)) {
    it(`is left alone by ${what}`, async t => {
      const stage = await openRetainingHost(t)
      fillTrash(stage)
      await run(stage)
      assert.equal(listOwn(stage, 'trash').length, 4)
    })
  }

  it('stays, with a warning, if it is a mount point', { skip: whyNoMounting() }, async t => {
    const stage = await openRetainingHost(t)
    const outside = fillTrash(stage)
    const mounted = join(stage.root, '.hub-deploy/trash/tree/inner')
    bindMount(t, outside, mounted)
    const { outputs, log } = await stage.deploy({ version: '2.0.0' }).finally(() => runProgram('umount', mounted))
    assert.equal(outputs['outcome'], 'success', log)
    assert.match(commandsIn(log, 'warning').join(), /tree\/inner is a mount point/)
    assert.deepEqual([listOwn(stage, 'trash'), readdirSync(outside)], [['tree'], ['precious']])
  })
})
