import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { sampled } from '../../extent.ts'
import { readLocalReport } from '../harness/evidence.ts'
import { runRecover } from '../harness/processes.ts'
import { openProjectStage, PROJECT_ID, projectFiles } from '../harness/project-stage.ts'
import { openStage, pluginFiles } from '../harness/stage.ts'

interface Scene {
  readonly root: string
  /** The content of the shipped file into which the service saves. */
  saved(): string
  /**
   * Updates to 2.0.0. A step before the installation saves the file as the service would, and the last step runs the
   * command `last`.
   */
  update(last: string): Promise<ActionResult>
}

const CONTRACTS: Record<'marketplace' | 'project', (t: TestContext) => Promise<Scene>> = {
  async marketplace(t) {
    const stage = await openStage()
    t.after(() => stage.close())
    const files = (version: string) => pluginFiles(version, { 'state.json': version })
    await stage.publish('1.0.0', files('1.0.0'))
    assert.equal((await stage.deploy()).exitCode, 0)
    await stage.publish('2.0.0', files('2.0.0'))
    return sceneOf(stage, 'greeter', async plan => {
      stage.writePlan(plan)
      return await stage.deploy({ 'host-config': 'host.yaml' })
    })
  },
  async project(t) {
    const stage = await openProjectStage()
    t.after(() => stage.close())
    const files = (version: string) => projectFiles(version, { 'plugins/cart/state.json': version })
    await stage.publish('1.0.0', files('1.0.0'))
    assert.equal((await stage.deploy()).exitCode, 0)
    return sceneOf(stage, 'cart', async plan => {
      const others = projectFiles('2.0.0')['deployment/install.yaml']?.split('\n').slice(5).join('\n')
      await stage.publish('2.0.0', { ...files('2.0.0'), 'deployment/install.yaml': `${plan}${others}` })
      return await stage.deploy({ 'host-config': 'host.yaml' })
    })
  },
}

type StageFolders = { readonly root: string; readonly workspace: { readonly path: string } }

function sceneOf({ root, workspace }: StageFolders, id: string, run: (plan: string) => Promise<ActionResult>): Scene {
  const state = join(root, `plugins/${id}/state.json`)
  const plan = `format_version: "1"
project_id: ${id === 'cart' ? PROJECT_ID : id}
version: "1"
steps:
  - {id: save, action: notify, event: save}
  - {id: ${id}, action: install_plugin, plugin: ${id}, snapshot: true, depends_on: [save]}
  - {id: work, action: provision, plugin: ${id}, depends_on: [${id}]}
`
  return {
    root,
    saved: () => readFileSync(state, 'utf8'),
    async update(last) {
      const notify = { save: { command: ['sh', '-c', `echo saved > '${state}'`] } }
      const provision = { [id]: { command: ['sh', '-c', last] } }
      writeFileSync(join(workspace.path, 'host.yaml'), JSON.stringify({ version: 1, notify, provision }))
      return await run(plan)
    },
  }
}

for (const [contract, open] of sampled(Object.entries(CONTRACTS), 1)) {
  describe(`a service that saves a shipped file while a deployment runs (${contract})`, () => {
    it('does not make the host inconsistent when the deployment fails', async t => {
      const scene = await open(t)
      const result = await scene.update('exit 1')
      const { outputs, log } = result
      assert.deepEqual([outputs['outcome'], outputs['running-version']], ['rolled_back', '1.0.0'], log)
      const { restored, verified } = readLocalReport(result).rollback ?? {}
      assert.deepEqual([restored, verified, scene.saved()], [true, null, 'saved\n'])
    })

    it('does not keep services from starting at boot after the deployment was killed', async t => {
      const scene = await open(t)
      const dead = await scene.update('kill -9 $PPID; sleep 1')
      assert.equal(dead.signal, 'SIGKILL', dead.log)
      const { status, stdout, stderr } = runRecover(['--project-root', scene.root])
      assert.deepEqual([status, scene.saved()], [0, 'saved\n'], stdout + stderr)
      assert.doesNotMatch(stdout + stderr, /inconsistent/)
    })
  })
}
