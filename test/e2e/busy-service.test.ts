import assert from 'node:assert/strict'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../local/runner.ts'
import { whyLeftToCi } from '../extent.ts'
import { BUSY_SERVICES, whileBusy, whyNoPerl } from './harness/busy-service.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage } from './harness/stage.ts'

/** The number of updates, and of rollbacks, next to each service. */
const ROUNDS = 3
const FAILING_PLAN = `${PLUGIN_PLAN}  - {id: work, action: provision, plugin: greeter, depends_on: [files]}\n`

describe('a deployment next to a service', { skip: whyLeftToCi() || whyNoPerl() }, () => {
  let stage: Stage
  before(async () => {
    stage = await openStage()
    for (const version of ['1.0.0', '2.0.0']) await stage.publish(version, pluginFiles(version))
    const config = { version: 1, provision: { greeter: { command: ['false'] } } }
    writeFileSync(join(stage.workspace.path, 'host.yaml'), JSON.stringify(config))
  })
  after(() => stage.close())

  for (const [index, service] of BUSY_SERVICES.entries()) {
    const root = (): string => join(stage.folder, `root-${index}`)
    const place = (): string => join(root(), 'plugins/greeter')
    const deploy = async (plan: string, version: string): Promise<ActionResult> => {
      stage.writePlan(plan)
      return await stage.deploy({ 'project-root': root(), 'host-config': 'host.yaml', version })
    }
    const deployBusy = async (t: TestContext, plan: string, version: string): Promise<ActionResult> =>
      await whileBusy(t, { service, place: place() }, () => deploy(plan, version))

    it(`${service} succeeds every time`, async t => {
      assert.equal((await deploy(PLUGIN_PLAN, '1.0.0')).exitCode, 0)
      for (let round = 1; round <= ROUNDS; round++) {
        const version = round % 2 === 1 ? '2.0.0' : '1.0.0'
        assertRuns(await deployBusy(t, PLUGIN_PLAN, version), 'success', { place: place(), version })
      }
    })

    it(`${service} rolls back every time`, async t => {
      rmSync(root(), { recursive: true, force: true })
      assert.equal((await deploy(PLUGIN_PLAN, '1.0.0')).exitCode, 0)
      for (let round = 1; round <= ROUNDS; round++)
        assertRuns(await deployBusy(t, FAILING_PLAN, '2.0.0'), 'rolled_back', { place: place(), version: '1.0.0' })
    })
  }
})

function assertRuns(
  { outputs, log }: ActionResult,
  outcome: string,
  { place, version }: { place: string; version: string },
): void {
  assert.equal(outputs['outcome'], outcome, log)
  assert.match(readFileSync(join(place, 'plugin.yaml'), 'utf8'), new RegExp(version.replaceAll('.', '\\.')), log)
}
