import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { openProjectStage, projectFiles } from '../harness/project-stage.ts'
import { openStage, pluginFiles, rollBack } from '../harness/stage.ts'

const MAX_FRAMES = 12
const HARNESS = join(import.meta.dirname, '../harness')
const PRELOADED = join(HARNESS, 'record-renames.mjs')
const KILLING = join(HARNESS, 'kill-before-rename.mjs')

/** The functions of each flow, from the action down to the steps. */
const FRAMES = {
  marketplace: ['deploy', 'deployArtifact', 'runContract', 'runLocked', 'MarketplaceFlow.install'],
  project: ['project', 'deployProject', 'runContract', 'runLocked', 'ProjectFlow.install'],
  rollback: ['rollback', 'rollBackVersion', 'runContract', 'runLocked', 'RollbackFlow.install'],
}
const SWITCH = ['switchParts', 'apply', 'applyChanges', 'makeMove']
const OF_STAGED = ['runSteps', 'switchRun', ...SWITCH]
const OF_RETAINED = ['runSteps', 'performStep', ...SWITCH]
const UNDO = ['rollBack', 'undoChanges', 'undoChange', 'undoMove', 'makeMove']
const OF_RECOVERY = ['deploy', 'deployArtifact', 'runContract', 'HostLock.take', 'recoverDeadRun', 'endRolledBack']

type Deploy = (inputs: Record<string, string>, run: Partial<ActionRun>) => Promise<ActionResult>

/**
 * Runs `deploy`. Returns the functions on the stack of the first rename that puts a tree at `to`, from the action down.
 */
async function framesOf(deploy: Deploy, folder: string, to: string): Promise<string[]> {
  const stacks = join(folder, 'stacks')
  rmSync(stacks, { force: true })
  const { exitCode, log } = await deploy({}, { env: { STACKS: stacks, NODE_OPTIONS: `--import=${PRELOADED}` } })
  assert.equal(exitCode, 0, log)
  const lines = readFileSync(stacks, 'utf8').trimEnd().split('\n')
  const renames: { to: string; stack: string }[] = lines.map(line => JSON.parse(line))
  const switching = renames.find(rename => rename.to === to)
  assert.ok(switching, `expected a rename to ${to}, but there was none`)
  const names = [...switching.stack.matchAll(/^ +at (?:async )?(\S+) \(/gm)].map(([, name = '']) => plainName(name))
  return names.slice(names.indexOf('fs.renameSync') + 1).reverse()
}

/**
 * A function's name as it is in the source. If a name is not unique, the bundle puts the name of the file before it.
 */
function plainName(name: string): string {
  return name.replace(/^Object\./, '').replace(/^\w+_(?=[a-z]\w*$)/, '')
}

describe('the stack of the rename that switches the versions', () => {
  let marketplace: Awaited<ReturnType<typeof openStage>>
  let project: Awaited<ReturnType<typeof openProjectStage>>

  before(async () => {
    marketplace = await openStage()
    project = await openProjectStage()
    await marketplace.publish('1.0.0', pluginFiles('1.0.0'))
    await project.publish('1.0.0', projectFiles('1.0.0'))
  })

  after(async () => {
    await marketplace.close()
    await project.close()
  })

  it(`names every function of the marketplace flow, at most ${MAX_FRAMES} with the rename`, async () => {
    const { deploy, folder, root } = marketplace
    const frames = await framesOf(deploy, folder, join(root, 'plugins/greeter'))
    assert.deepEqual(frames, [...FRAMES.marketplace, ...OF_STAGED])
    assert.ok(frames.length + 1 <= MAX_FRAMES)
  })

  it(`names every function of the project flow, at most ${MAX_FRAMES} with the rename`, async () => {
    const { deploy, folder, root } = project
    const frames = await framesOf(deploy, folder, join(root, 'plugins/cart'))
    assert.deepEqual(frames, [...FRAMES.project, ...OF_STAGED])
    assert.ok(frames.length + 1 <= MAX_FRAMES)
  })

  it(`names every function of a rollback, at most ${MAX_FRAMES} with the rename`, async () => {
    const { deploy, root, publish, workspace } = marketplace
    await publish('2.0.0', pluginFiles('2.0.0'))
    const updated = await deploy({ version: '2.0.0' })
    assert.equal(updated.exitCode, 0, updated.log)
    const restore: Deploy = (inputs, run) => rollBack({ workspace, root }, inputs, run)
    const frames = await framesOf(restore, workspace.path, join(root, 'plugins/greeter'))
    assert.deepEqual(frames, [...FRAMES.rollback, ...OF_RETAINED])
    assert.ok(frames.length + 1 <= MAX_FRAMES)
  })

  it(`names every function of a recovery, at most ${MAX_FRAMES} with the rename`, async () => {
    const { deploy, publish, root, workspace } = marketplace
    await publish('3.0.0', pluginFiles('3.0.0'))
    const place = join(root, 'plugins/greeter')
    const env = { KILL_BEFORE: place, NODE_OPTIONS: `--import=${KILLING}` }
    const killed = await deploy({ version: '3.0.0' }, { env })
    assert.equal(killed.signal, 'SIGKILL', killed.log)
    const next: Deploy = (inputs, run) => deploy({ version: '3.0.0', ...inputs }, run)
    const frames = await framesOf(next, workspace.path, place)
    assert.deepEqual(frames, [...OF_RECOVERY, ...UNDO])
    assert.ok(frames.length + 1 <= MAX_FRAMES)
  })
})
