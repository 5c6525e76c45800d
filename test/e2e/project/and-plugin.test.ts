import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { yankVersion } from '../../../hub/marketplace/catalogue.ts'
import type { ActionResult } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { acceptedReports, commandsIn, listHost, listLive } from '../harness/evidence.ts'
import { standIn } from '../harness/processes.ts'
import { acceptedProjectReports, installedRows, runningParts } from '../harness/project-evidence.ts'
import { openProjectStage, PROJECT_ID, type ProjectStage, projectFiles } from '../harness/project-stage.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage, writeFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

let market: Stage
let stage: ProjectStage
beforeEach(async () => {
  market = await openStage()
  stage = await openProjectStage()
  await market.publish('5.0.0', pluginFiles('5.0.0'))
  await stage.publish('1.0.0', projectFiles('1.0.0'))
})
afterEach(async () => {
  await stage.close()
  await market.close()
})

/** Deploys the project to the host that has the marketplace's plugins. */
function deployProject(inputs: Record<string, string> = {}): Promise<ActionResult> {
  return stage.deploy({ 'project-root': market.root, ...inputs })
}

function assertDeployed({ exitCode, outputs, log }: ActionResult, changed = 'true'): void {
  assert.deepEqual([exitCode, outputs['outcome'], outputs['changed']], [0, 'success', changed], log)
}

function assertRefused({ outputs, log }: ActionResult, code: string): void {
  assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', code], log)
}

describe('a plugin of the marketplace and a project on one host', () => {
  it('are deployed side by side, each with its own record', async () => {
    assertDeployed(await market.deploy())
    assertDeployed(await deployProject())
    assertDeployed(await market.deploy(), 'false')
    assertDeployed(await deployProject(), 'false')
    assert.deepEqual(
      Object.entries(installedRows(market)).map(([place, { contract, slug }]) => [place, contract, slug]),
      [
        ['service mailer', 'project', PROJECT_ID],
        ['plugin cart', 'project', PROJECT_ID],
        ['plugin greeter', 'marketplace', 'greeter'],
        ['plugin till', 'project', PROJECT_ID],
      ],
    )
  })

  it('are updated and downgraded independently', { skip: ONLY_IN_CI }, async () => {
    assertDeployed(await market.deploy())
    assertDeployed(await deployProject())
    await stage.publish('2.0.0', projectFiles('2.0.0'))
    await market.publish('4.0.0', pluginFiles('4.0.0'))
    const { outputs } = await deployProject()
    assert.deepEqual([outputs['previous-version'], outputs['version']], ['1.0.0', '2.0.0'])
    yankVersion(market.store, { kind: 'plugin', slug: 'greeter', version: '5.0.0' })
    assertRefused(await market.deploy(), 'downgrade_refused')
    assert.deepEqual(runningParts(market), ['2.0.0', '2.0.0', '2.0.0'])
  })

  it('are reported to their own hubs, each in the form of its contract', { skip: ONLY_IN_CI }, async () => {
    const plugin = await market.deploy()
    const project = await deployProject()
    assert.deepEqual(
      acceptedReports(market).map(({ kind, slug }) => [kind, slug]),
      [['plugin', 'greeter']],
    )
    assert.deepEqual(
      acceptedProjectReports(stage).map(({ deployment_id }) => deployment_id),
      [project.outputs['deployment-id']],
    )
    assert.deepEqual([acceptedReports(stage), acceptedProjectReports(market)], [[], []])
    const audit = readFileSync(join(market.root, '.hub-deploy/audit.jsonl'), 'utf8').trim().split('\n')
    assert.deepEqual(
      audit.map(line => JSON.parse(line).deployment_id),
      [plugin, project].map(({ outputs }) => outputs['deployment-id']),
    )
  })

  it('fail without touching each other', async () => {
    assertDeployed(await market.deploy())
    assertDeployed(await deployProject())
    const before = listHost(market.root)
    assertRefused(await market.deploy({ 'signing-secret': 'of another developer' }), 'signature_mismatch')
    assertRefused(await deployProject({ 'deployment-credential': 'of nobody' }), 'authentication_failed')
    assert.deepEqual(listHost(market.root), before)
  })

  it('recover each other: the project rolls back a killed plugin deployment, whose hub gets the report later', {
    skip: ONLY_IN_CI,
  }, async t => {
    assertDeployed(await market.deploy())
    await market.publish('6.0.0', pluginFiles('6.0.0'))
    const old = listLive(market.root)
    const killed = await market.deploy({}, { env: { PATH: standIn(t, 'sync', 'kill -KILL $PPID') } })
    assert.equal(killed.signal, 'SIGKILL')
    assertDeployed(await deployProject())
    for (const [path, what] of Object.entries(old)) assert.equal(listLive(market.root)[path], what)
    assertDeployed(await market.deploy())
    assert.deepEqual(
      acceptedReports(market).map(({ version, status }) => [version, status]),
      [
        ['5.0.0', 'success'],
        ['6.0.0', 'failed'],
        ['6.0.0', 'success'],
      ],
    )
  })
})

describe('a project with a plugin that the marketplace has installed', () => {
  beforeEach(async () => {
    await market.publish('9.0.0', pluginFiles('9.0.0'), { slug: 'cart' })
    market.writePlan(PLUGIN_PLAN.replaceAll('greeter', 'cart'))
    assertDeployed(await market.deploy({ slug: 'cart' }))
  })

  it('takes over neither the plugin nor its data', { skip: ONLY_IN_CI }, async () => {
    writeFiles(market.root, { 'plugins/cart/data/orders': 'all of them' })
    const before = listLive(market.root)
    assertRefused(await deployProject(), 'place_taken')
    assert.deepEqual(listLive(market.root), before)
  })

  it('takes the plugin over when the operator allows that, and keeps the old tree as a snapshot', {
    skip: ONLY_IN_CI,
  }, async () => {
    const result = await deployProject({ 'allow-takeover': 'true' })
    assertDeployed(result)
    assert.match(commandsIn(result.log, 'warning').join(), /takes over plugins\/cart/)
    assert.equal(commandsIn(result.log, 'error').length, 0)
    const { contract, version, snapshots } = installedRows(market)['plugin cart'] ?? {}
    assert.deepEqual([contract, version, snapshots?.map(({ name }) => name)], ['project', '1.0.0', ['1-9.0.0']])
    assert.ok(existsSync(join(market.root, '.hub-deploy/snapshots/plugins/cart/1-9.0.0/plugin.yaml')))
    assert.equal(result.outputs['previous-version'], '')
  })
})

describe('a plugin of the marketplace whose directory has another origin', () => {
  it('is refused before anything is fetched, even in a dry run, if that is a project', async () => {
    assertDeployed(await deployProject())
    await market.publish('9.0.0', pluginFiles('9.0.0'), { slug: 'cart' })
    market.writePlan(PLUGIN_PLAN.replaceAll('greeter', 'cart'))
    for (const dryRun of ['true', 'false']) {
      const result = await market.deploy({ slug: 'cart', 'dry-run': dryRun })
      assertRefused(result, 'place_taken')
      assert.equal(result.outputs['artifact-sha256'], '')
    }
    assert.equal(installedRows(market)['plugin cart']?.contract, 'project')
    assertDeployed(await market.deploy({ slug: 'cart', 'allow-takeover': 'true' }))
    assert.equal(installedRows(market)['plugin cart']?.contract, 'marketplace')
  })

  it('is refused if that is another slug of the marketplace', { skip: ONLY_IN_CI }, async () => {
    assertDeployed(await market.deploy())
    await market.publish('9.0.0', pluginFiles('9.0.0'), { slug: 'other' })
    market.writePlan(PLUGIN_PLAN.replace('project_id: greeter', 'project_id: other'))
    assertRefused(await market.deploy({ slug: 'other' }), 'place_taken')
    assertDeployed(await market.deploy({ slug: 'other', 'allow-takeover': 'true' }))
  })
})
