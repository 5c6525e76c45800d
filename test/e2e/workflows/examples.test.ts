import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { appendFileSync, chmodSync, existsSync, readdirSync, readFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { createProjectKey } from '../../../hub/project/keys.ts'
import { whyLeftToCi } from '../../extent.ts'
import { openProjectStage } from '../harness/project-stage.ts'
import { pluginFiles, writeFiles } from '../harness/stage.ts'
import { outline, outputsOf, type WorkflowResult, whyNoEngine } from './engine.ts'
import { assertNoneIn, type FleetStage, HOSTS, openFleetStage, runOn } from './fleet-stage.ts'

const EXAMPLES = join(import.meta.dirname, '../../../examples')

const ONLY_IN_CI = whyLeftToCi()

/** A pull request from a branch of this repository. */
const PULL_REQUEST = { pull_request: { head: { repo: { full_name: 'example/operations' } } } }

describe('the example workflows', { skip: whyNoEngine() }, () => {
  it('deploy.yml deploys to one host and prints its outputs', async t => {
    const fleet = await openFleet(t)
    const result = await execute(fleet, 'deploy.yml', { version: 'latest' })
    assert.deepEqual(outline(result), ['deploy: success'], result.log)
    assert.deepEqual(fleet.versions(), ['1.0.0', undefined])
    assert.match(result.log, /success, 1\.0\.0 \(previously not installed\)/)
  })

  it('deploy-fleet.yml deploys one artifact to each host, and none with a different digest', {
    skip: ONLY_IN_CI,
  }, async t => {
    const fleet = await openFleet(t)
    const refused = await execute(fleet, 'deploy-fleet.yml', { version: '1.0.0', sha256: 'a'.repeat(64) })
    assert.deepEqual(outline(refused), ['deploy (app-1): failure', 'deploy (app-2): failure'], refused.log)
    assert.deepEqual(fleet.versions(), [undefined, undefined])
    const sha256 = outputsOf(refused)['artifact-sha256']
    const result = await execute(fleet, 'deploy-fleet.yml', { version: '1.0.0', sha256 })
    assert.deepEqual(outline(result), ['deploy (app-1): success', 'deploy (app-2): success'], result.log)
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
  })

  it('dry-run.yml shows the changes of a pull request and makes none of them', async t => {
    const fleet = await openFleet(t)
    const result = await fleet.run(readExample('workflows/dry-run.yml'), {
      event: 'pull_request',
      payload: PULL_REQUEST,
    })
    assert.deepEqual(outline(result), ['dry-run: success'], result.log)
    const { outcome, changed, version } = outputsOf(result)
    assert.deepEqual({ outcome, changed, version }, { outcome: 'success', changed: 'false', version: '1.0.0' })
    assert.deepEqual(fleet.files('app-1'), {})
  })

  it("dry-run.yml runs nothing for a fork's pull request", async t => {
    const fleet = await openFleet(t)
    const payload = { pull_request: { head: { repo: { full_name: 'fork/operations' } } } }
    const result = await fleet.run(readExample('workflows/dry-run.yml'), { event: 'pull_request', payload })
    assert.deepEqual(outline(result), [])
  })

  it('deploy-project.yml deploys every part of a project', async t => {
    const stage = await openProjectStage()
    t.after(() => stage.close())
    const projectId = 'prj_ShopExample01'
    await stage.publish('1.0.0', filesIn(join(EXAMPLES, 'project')), { projectId })
    const workflow = readExample('workflows/deploy-project.yml')
    const pinned = workflow.replace(/signer-public-key: .*/, `signer-public-key: ${stage.signerPublicKey}`)
    const newKey = (purpose: 'devkey' | 'credential') =>
      createProjectKey(stage.store, { project_id: projectId, purpose, name: 'test' }).value
    const secrets = { HUB_DEVKEY: newKey('devkey'), SHOP_DEPLOYMENT_CREDENTIAL: newKey('credential') }
    const result = await runOn(stage, pinned, { secrets, payload: { inputs: { version: 'latest' } } })
    assert.deepEqual(outline(result), ['deploy: success'], result.log)
    assert.ok(existsSync(join(stage.folder, 'hosts/app-1/plugins/cart/plugin.yaml')))
    assertNoneIn(result, Object.values(secrets))
  })

  it('emergency-rollback.yml restores the previous version on every host, without a hub to ask', {
    skip: ONLY_IN_CI,
  }, async t => {
    const fleet = await openFleet(t)
    for (const version of ['1.0.0', '2.0.0']) {
      if (version !== '1.0.0') await fleet.release(version)
      await fleet.install(version)
    }
    fleet.write('deploy/host-config.yaml', 'version: 1\nsupervisor: none\n')
    const inputs = { hosts: 'all', id: 'greeter' }
    const result = await execute(fleet, 'emergency-rollback.yml', inputs)
    assert.deepEqual(outline(result), ['rollback (app-1): success', 'rollback (app-2): success'], result.log)
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
    assert.deepEqual(await fleet.hosts(), ['app-1 1.0.0 success', 'app-2 1.0.0 success'])
  })

  it('emergency-rollback.yml leaves alone the hosts that are not in its list', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openFleet(t)
    await fleet.install('1.0.0')
    const before = fleet.files('app-1')
    fleet.write('deploy/host-config.yaml', 'version: 1\nsupervisor: none\n')
    const result = await execute(fleet, 'emergency-rollback.yml', { hosts: '["app-2"]' })
    assert.deepEqual(outline(result), ['rollback (app-2): failure'], result.log)
    assert.equal(outputsOf(result)['error-code'], 'no_snapshot')
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
    assert.deepEqual(fleet.files('app-1'), before)
  })

  it('nightly-drift.yml fails for the host whose files were changed, and changes no file', async t => {
    const fleet = await openFleet(t)
    await fleet.install('1.0.0')
    appendFileSync(join(fleet.rootOf('app-2'), 'plugins/greeter/plugin.yaml'), '# changed\n')
    const before = [fleet.files('app-1'), fleet.files('app-2')]
    const result = await fleet.run(readExample('workflows/nightly-drift.yml'), { event: 'schedule' })
    assert.deepEqual(outline(result), ['status (app-1): success', 'status (app-2): failure'], result.log)
    assert.deepEqual([fleet.files('app-1'), fleet.files('app-2')], before)
  })

  it('nightly-latest.yml deploys to every host the artifact that its gate verified', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openFleet(t)
    await fleet.install('1.0.0')
    await fleet.release('2.0.0')
    fleet.write('deploy/install-and-restart.yaml', readExample('install-and-restart.yaml'))
    const command = ['/bin/true']
    const rest = { provision: { greeter: { command } }, notify: { deployed: { command } } }
    const config = { version: 1, supervisor: 'none', plugins: { greeter: { healthcheck: { command } } }, ...rest }
    for (const host of HOSTS) fleet.write(`deploy/hosts/${host}.yaml`, JSON.stringify(config))
    const result = await fleet.run(readExample('workflows/nightly-latest.yml'), { event: 'schedule' })
    assert.equal(result.exitCode, 0, result.log)
    const digests = ['gate', 'canary', 'hosts'].map(job => outputsOf(result, job)['artifact-sha256'])
    assert.match(digests[0] ?? '', /^[0-9a-f]{64}$/)
    assert.deepEqual(digests, Array(3).fill(digests[0]))
    assert.deepEqual(fleet.versions(), ['2.0.0', '2.0.0'])
    fleet.assertNoSecret(result)
  })

  it('check-plan.yml checks a plan without a hub, and fails for a plan that no host would run', async t => {
    const fleet = await openFleet(t)
    fleet.write('deploy/host-config.yaml', 'version: 1\nsupervisor: none\n')
    const run = { event: 'pull_request', payload: PULL_REQUEST, secrets: {} }
    const good = await fleet.run(readExample('workflows/check-plan.yml'), run)
    assert.deepEqual(outline(good), ['check: success'], good.log)
    fleet.write('deploy/install.yaml', readExample('install.yaml').replace('action: prepare', 'action: run'))
    const bad = await fleet.run(readExample('workflows/check-plan.yml'), run)
    assert.deepEqual(outline(bad), ['check: failure'], bad.log)
    assert.equal(outputsOf(bad)['error-code'], 'invalid_plan')
  })

  it('release-gate.yml deploys the artifact that the gate verified', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openFleet(t)
    const result = await execute(fleet, 'release-gate.yml', { version: 'latest' })
    const expected = ['gate: success', 'deploy (app-1): success', 'deploy (app-2): success']
    assert.deepEqual(outline(result), expected, result.log)
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
    assert.equal(outputsOf(result, 'deploy')['artifact-sha256'], outputsOf(result, 'gate')['artifact-sha256'])
  })

  it('release-gate.yml touches no host when the signature is wrong', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openFleet(t)
    await fleet.publish('2.0.0', pluginFiles('2.0.0'), { signingSecret: 'of another developer' })
    const result = await execute(fleet, 'release-gate.yml', { version: 'latest' })
    assert.deepEqual(outline(result), ['gate: failure'], result.log)
    assert.deepEqual([fleet.files('app-1'), fleet.files('app-2'), await fleet.hosts()], [{}, {}, []])
  })

  describe('release.yml', () => {
    it('builds, publishes and releases the artifact that the gate finds on the hub', async t => {
      const { fleet, releases } = await openRelease(t)
      const result = await release(fleet, 'v2.0.0')
      assert.deepEqual(outline(result), ['release: success'], result.log)
      assert.deepEqual(releases(), ['v2.0.0'])
      assert.equal(await latestOn(fleet), '2.0.0')
    })

    it('publishes nothing when the tag is not the version of the plugin', { skip: ONLY_IN_CI }, async t => {
      const { fleet, releases } = await openRelease(t)
      const result = await release(fleet, 'v3.0.0')
      assert.deepEqual(outline(result), ['release: failure'], result.log)
      assert.deepEqual([releases(), await latestOn(fleet)], [[], '1.0.0'])
    })

    it('releases nothing when the hub serves bytes other than those that were built', {
      skip: ONLY_IN_CI,
    }, async t => {
      const { fleet, releases } = await openRelease(t)
      await fleet.publish('2.0.0', pluginFiles('2.0.0'))
      // With `:`, the command succeeds without publishing, so the hub keeps the bytes that it has.
      const result = await release(fleet, 'v2.0.0', text => text.replace('npm --prefix', ': npm --prefix'))
      assert.deepEqual(outline(result), ['release: failure'], result.log)
      assert.deepEqual(releases(), [])
    })
  })
})

async function openFleet(t: TestContext): Promise<FleetStage> {
  const fleet = await openFleetStage()
  t.after(() => fleet.close())
  fleet.write('deploy/install.yaml', readExample('install.yaml'))
  await fleet.publish('1.0.0', filesIn(join(EXAMPLES, 'plugin')))
  return fleet
}

async function execute(fleet: FleetStage, name: string, inputs: object): Promise<WorkflowResult> {
  const result = await fleet.run(readExample(`workflows/${name}`), { payload: { inputs } })
  fleet.assertNoSecret(result)
  return result
}

/** A repository with the plugin 2.0.0 and a command `gh` that records each release. */
async function openRelease(t: TestContext): Promise<{ fleet: FleetStage; releases: () => string[] }> {
  const fleet = await openFleet(t)
  for (const [path, text] of Object.entries(pluginFiles('2.0.0'))) fleet.write(`plugin/${path}`, text)
  const commit = 'git init -q && git add . && git -c user.name=t -c user.email=t@t commit -qm t'
  execFileSync('sh', ['-ec', commit], { cwd: fleet.repository })
  const notes = join(fleet.folder, 'releases')
  writeFiles(fleet.folder, { 'bin/gh': `#!/bin/sh\necho "$3" >>${notes}\n`, releases: '' })
  chmodSync(join(fleet.folder, 'bin/gh'), 0o755)
  return { fleet, releases: () => readFileSync(notes, 'utf8').split('\n').filter(Boolean) }
}

async function release(
  fleet: FleetStage,
  tag: string,
  change = (workflow: string) => workflow,
): Promise<WorkflowResult> {
  const result = await fleet.run(change(readExample('workflows/release.yml')), {
    event: 'push',
    ref: `refs/tags/${tag}`,
    path: [join(fleet.folder, 'bin'), process.env['PATH']].join(delimiter),
  })
  fleet.assertNoSecret(result)
  return result
}

async function latestOn({ hub }: FleetStage): Promise<string> {
  return ((await (await fetch(`${hub.url}/plugins/greeter`)).json()) as { latest_version: string }).latest_version
}

function filesIn(folder: string): Record<string, string> {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
  const paths = files.map(file => join(file.parentPath, file.name))
  return Object.fromEntries(paths.map(path => [path.slice(folder.length + 1), readFileSync(path, 'utf8')]))
}

function readExample(path: string): string {
  return readFileSync(join(EXAMPLES, path), 'utf8')
}
