import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parse } from 'yaml'
import { yankVersion } from '../../../hub/marketplace/catalogue.ts'
import { whyLeftToCi } from '../../extent.ts'
import { serve } from '../../net/loopback-server.ts'
import { pluginFiles } from '../harness/stage.ts'
import { outline, outputsOf, type WorkflowResult, whyNoEngine } from './engine.ts'
import { type FleetStage, openFleetStage } from './fleet-stage.ts'

const ROOT = join(import.meta.dirname, '../../..')
const ROLLOUT = parse(read('.github/workflows/rollout.yml'))
const CALLER = read('examples/workflows/rollout.yml')
const ONLY_IN_CI = whyLeftToCi()

describe('the workflow rollout.yml', { skip: whyNoEngine() }, () => {
  it('installs the verified version on the canary, then on the others, even if a newer version appears', async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    await onCheckOfCanary(t, fleet, async nth => {
      if (nth === 0) await fleet.release('3.0.0')
    })
    const result = await rollOut(fleet, { version: '2.0.0' })
    assert.deepEqual(outline(result), [
      'gate: success',
      'canary: success',
      'health: success',
      'hosts (app-2): success',
      'fleet: success',
    ])
    assert.equal(result.exitCode, 0)
    assert.equal(outputsOf(result, 'health')['changed'], 'false')
    assert.deepEqual(fleet.versions(), ['2.0.0', '2.0.0'])
    assert.deepEqual(fleet.installedFiles('app-1'), fleet.installedFiles('app-2'))
    assert.deepEqual(await fleet.hosts(), ['app-1 2.0.0 success', 'app-2 2.0.0 success'])
  })

  it('rolls out without a plan, with the checks of the host configs', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const result = await rollOut(fleet, { caller: CALLER.replace(/^ *install-plan: .*\n/m, '') })
    assert.equal(result.exitCode, 0, result.log)
    assert.equal(result.log.match(/install-plan names no file, so this is the default plan/g)?.length, 4)
    assert.deepEqual(fleet.versions(), ['2.0.0', '2.0.0'])
  })

  it('touches no host when the signature is wrong', async t => {
    const fleet = await openOldFleet(t)
    await fleet.publish('2.0.0', pluginFiles('2.0.0'), { signingSecret: 'of another developer' })
    const before = await everythingIn(fleet)
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result), ['gate: failure'])
    assert.equal(result.exitCode, 1)
    assert.equal(outputsOf(result, 'gate')['error-code'], 'signature_mismatch')
    assert.deepEqual(await everythingIn(fleet), before)
  })

  it('rolls an unhealthy canary back and touches no other host', async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0', 'broken')
    const [canary, other] = [fleet.installedFiles('app-1'), fleet.files('app-2')]
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result), ['gate: success', 'canary: failure', 'fleet: failure'])
    const { outcome, 'error-code': code } = outputsOf(result, 'canary')
    assert.deepEqual([outcome, code], ['rolled_back', 'unhealthy'])
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
    assert.deepEqual([fleet.installedFiles('app-1'), fleet.files('app-2')], [canary, other])
    assert.deepEqual(await fleet.hosts(), ['app-1 2.0.0 rolled_back', 'app-2 1.0.0 success'])
    const { 'error-code': fleetCode, versions = '' } = outputsOf(result, 'fleet')
    assert.equal(fleetCode, 'fleet_out_of_sync')
    assert.deepEqual(JSON.parse(versions), { '1.0.0': ['app-1', 'app-2'] })
  })

  it('rolls the canary back when it becomes unhealthy later, and touches no other host', {
    skip: ONLY_IN_CI,
  }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const [canary, other] = [fleet.installedFiles('app-1'), fleet.files('app-2')]
    const counted = join(fleet.folder, 'checks')
    // The old version is always healthy, and the new version only at its first check.
    const check = `grep -q 1.0.0 ${fleet.rootOf('app-1')}/plugins/greeter/plugin.yaml || [ ! -e ${counted} ]`
    fleet.checkHealth('app-1', `${check} && touch ${counted}`)
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result), ['gate: success', 'canary: success', 'health: failure', 'fleet: failure'])
    assert.equal(outputsOf(result, 'health')['error-code'], 'unhealthy')
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
    assert.deepEqual([fleet.installedFiles('app-1'), fleet.files('app-2')], [canary, other])
    assert.deepEqual(await fleet.hosts(), ['app-1 1.0.0 success', 'app-2 1.0.0 success'])
  })

  it('leaves alone a canary on which an operator has installed the old version during the soak', {
    skip: ONLY_IN_CI,
  }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const other = fleet.files('app-2')
    const here = { 'project-root': fleet.rootOf('app-1'), 'host-id': 'app-1' }
    await onCheckOfCanary(t, fleet, async nth => {
      if (nth === 1) await fleet.deploy({ version: '1.0.0', ...here })
    })
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result), ['gate: success', 'canary: success', 'health: failure', 'fleet: failure'])
    assert.equal(outputsOf(result, 'health')['error-code'], 'not_installed')
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
    assert.deepEqual(fleet.files('app-2'), other)
  })

  it('rolls a cancelled leg back and does not call the fleet in sync', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const before = fleet.installedFiles('app-2')
    fleet.checkHealth('app-2', cancelOnce(fleet, 'kill -INT $PPID'))
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result).slice(3), ['hosts (app-2): failure', 'fleet: failure'])
    const { outcome, 'error-code': code } = outputsOf(result, 'hosts')
    assert.deepEqual([outcome, code], ['rolled_back', 'cancelled'])
    assert.deepEqual(fleet.versions(), ['2.0.0', '1.0.0'])
    assert.deepEqual(fleet.installedFiles('app-2'), before)
    assert.deepEqual(await fleet.hosts(), ['app-1 2.0.0 success', 'app-2 2.0.0 rolled_back'])
  })

  it('stops when the canary is cancelled', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const [canary, other] = [fleet.installedFiles('app-1'), fleet.files('app-2')]
    fleet.checkHealth('app-1', cancelOnce(fleet, 'kill -INT $PPID'))
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result), ['gate: success', 'canary: failure', 'fleet: failure'])
    assert.deepEqual([fleet.installedFiles('app-1'), fleet.files('app-2')], [canary, other])
  })

  it('recovers a host whose leg was killed when the run was cancelled', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const [canary, other] = [fleet.installedFiles('app-1'), fleet.files('app-2')]
    // The engine is the parent of the step's process. It kills that process, runs the post step and begins no further
    // step.
    fleet.checkHealth('app-1', cancelOnce(fleet, "kill -INT $(cut -d' ' -f4 /proc/$PPID/stat)"))
    const result = await rollOut(fleet)
    assert.notEqual(result.exitCode, 0)
    assert.equal(outputsOf(result, 'canary')['outcome'], 'interrupted')
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
    assert.deepEqual([fleet.installedFiles('app-1'), fleet.files('app-2')], [canary, other])
    const begun = result.jobs.filter(({ steps }) => steps.some(({ result }) => result !== undefined))
    assert.deepEqual(
      begun.map(({ id }) => id),
      ['gate', 'canary'],
    )
  })

  it('replaces no newer version when the hub offers an older one as the latest', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    await fleet.install('2.0.0')
    yankVersion(fleet.store, { kind: 'plugin', slug: 'greeter', version: '2.0.0' })
    const other = fleet.files('app-2')
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result), ['gate: success', 'canary: failure', 'fleet: failure'])
    assert.equal(outputsOf(result, 'canary')['error-code'], 'downgrade_refused')
    assert.deepEqual(fleet.versions(), ['2.0.0', '2.0.0'])
    assert.deepEqual(fleet.files('app-2'), other)
  })

  it('stops at the next host when a newer version appears during a rollout of latest', {
    skip: ONLY_IN_CI,
  }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const other = fleet.installedFiles('app-2')
    await onCheckOfCanary(t, fleet, async nth => {
      if (nth === 1) await fleet.release('3.0.0')
    })
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result).slice(2), ['health: success', 'hosts (app-2): failure', 'fleet: failure'])
    assert.equal(outputsOf(result, 'hosts')['error-code'], 'digest_mismatch')
    assert.deepEqual(fleet.versions(), ['2.0.0', '1.0.0'])
    assert.deepEqual(fleet.installedFiles('app-2'), other)
  })

  it('leaves alone a host that runs a version newer than the latest', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('3.0.0')
    await fleet.deploy({ version: '3.0.0', 'project-root': fleet.rootOf('app-2'), 'host-id': 'app-2' })
    yankVersion(fleet.store, { kind: 'plugin', slug: 'greeter', version: '3.0.0' })
    await fleet.release('2.0.0')
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result).slice(2), ['health: success', 'hosts (app-2): failure', 'fleet: failure'])
    assert.equal(outputsOf(result, 'hosts')['error-code'], 'downgrade_refused')
    assert.deepEqual(fleet.versions(), ['2.0.0', '3.0.0'])
  })

  for (const version of ['latest', '1.0.0']) {
    it(`stops at the canary when the hub has swapped the bytes of the installed version (${version})`, async t => {
      const fleet = await openOldFleet(t)
      await fleet.publish('1.0.0', pluginFiles('1.0.0', { swapped: '' }), { replace: true })
      const [canary, other] = [fleet.installedFiles('app-1'), fleet.files('app-2')]
      const result = await rollOut(fleet, { version })
      assert.deepEqual(outline(result), ['gate: success', 'canary: failure', 'fleet: failure'])
      assert.equal(outputsOf(result, 'canary')['error-code'], 'version_reused')
      assert.deepEqual([fleet.installedFiles('app-1'), fleet.files('app-2')], [canary, other])
    })
  }

  it('installs no other bytes under the version that the gate verified', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const before = fleet.installedFiles('app-2')
    await onCheckOfCanary(t, fleet, async nth => {
      const files = pluginFiles('2.0.0', { other: '' })
      if (nth === 1) await fleet.publish('2.0.0', files, { replace: true })
    })
    const result = await rollOut(fleet)
    assert.deepEqual(outline(result).slice(2), ['health: success', 'hosts (app-2): failure', 'fleet: failure'])
    assert.equal(outputsOf(result, 'hosts')['error-code'], 'digest_mismatch')
    assert.deepEqual(fleet.installedFiles('app-2'), before)
  })

  it('deploys only to the canary when there are no other hosts', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    await fleet.release('2.0.0')
    const other = fleet.files('app-2')
    const result = await rollOut(fleet, { caller: CALLER.replace(/hosts: '.*'/, "hosts: '[ ]'") })
    assert.deepEqual(outline(result), ['gate: success', 'canary: success', 'health: success', 'fleet: success'])
    assert.deepEqual(fleet.files('app-2'), other)
  })

  it('passes wait-seconds to the fleet check even when there are no other hosts', { skip: ONLY_IN_CI }, async t => {
    const fleet = await openOldFleet(t)
    // The fleet check refuses this wait, which proves that the workflow passes `wait-seconds` on.
    const caller = CALLER.replace(/hosts: '.*'/, "hosts: '[]'\n      wait-seconds: -1")
    const result = await rollOut(fleet, { caller })
    assert.deepEqual(outline(result), ['gate: success', 'canary: success', 'health: success', 'fleet: failure'])
    assert.equal(outputsOf(result, 'fleet')['error-code'], 'invalid_input')
  })
})

describe('the file rollout.yml', () => {
  it('asks only for permission to read the repository', () => {
    assert.deepEqual(ROLLOUT.permissions, { contents: 'read' })
    for (const job of Object.values<object>(ROLLOUT.jobs)) assert.ok(!('permissions' in job))
  })

  it('lets only one rollout of a plugin or service run at a time, and does not cancel a running one', () => {
    const { group, 'cancel-in-progress': cancels } = ROLLOUT.concurrency
    assert.match(group, /^[a-z-]+\$\{\{ inputs\.kind \}\}-\$\{\{ inputs\.slug \}\}$/)
    assert.equal(cancels, false)
  })

  it('describes every input and secret, and gives every input a type', () => {
    const { inputs, secrets, outputs } = ROLLOUT.on.workflow_call
    for (const [name, { type, description }] of Object.entries<Record<string, string>>(inputs)) {
      assert.ok(['string', 'number', 'boolean'].includes(type ?? '') && description, name)
    }
    for (const [name, { description }] of Object.entries<Record<string, string>>({ ...secrets, ...outputs })) {
      assert.ok(description, name)
    }
  })

  it('is called in docs/fleets.md as in the examples', () => {
    const [, shown = ''] = /^```yaml\n([\s\S]*?)^```$/m.exec(read('docs/fleets.md')) ?? []
    assert.ok(shown.includes('rollout.yml') && CALLER.endsWith(shown))
  })

  it('checks the canary after the soak without a deployment', () => {
    const [check = {}] = ROLLOUT.jobs.health.steps.filter(({ id }: { id?: string }) => id === 'check')
    assert.equal(check.with['check-only'], true)
  })

  it('rolls the canary back with the plan of the rollout', () => {
    const steps = Object.values<{ steps: { uses?: string; with?: object }[] }>(ROLLOUT.jobs).flatMap(job => job.steps)
    const [rollback = {}] = steps.flatMap(({ uses, with: inputs }) =>
      uses?.includes('/rollback@') ? [{ ...inputs }] : [],
    )
    // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of the workflow
    assert.equal(Object.entries(rollback).find(([name]) => name === 'install-plan')?.[1], '${{ inputs.install-plan }}')
  })

  it('pins every action from another repository to a commit', () => {
    const jobs = Object.values<{ steps: { uses?: string }[] }>(ROLLOUT.jobs)
    const used = jobs.flatMap(job => job.steps).flatMap(({ uses }) => uses ?? [])
    for (const uses of used) assert.match(uses, /^OWNER\/hub-deploy(\/[a-z]+)?@v1$|@[0-9a-f]{40}$/)
  })
})

/** A fleet in which every host runs 1.0.0. */
async function openOldFleet(t: TestContext): Promise<FleetStage> {
  const fleet = await openFleetStage()
  t.after(() => fleet.close())
  await fleet.release('1.0.0')
  await fleet.install('1.0.0')
  return fleet
}

interface Rollout {
  caller?: string
  version?: string
}

async function rollOut(
  fleet: FleetStage,
  { caller = CALLER, version = 'latest' }: Rollout = {},
): Promise<WorkflowResult> {
  const result = await fleet.run(caller, { payload: { inputs: { version } } })
  fleet.assertNoSecret(result)
  return result
}

/** The hosts' files and the hub's reports about them. */
async function everythingIn(fleet: FleetStage): Promise<unknown> {
  return { canary: fleet.files('app-1'), other: fleet.files('app-2'), hosts: await fleet.hosts() }
}

/** A health check that cancels its own deployment once and waits until the deployment has ended. */
function cancelOnce({ folder }: FleetStage, cancel: string): string {
  const done = join(folder, 'cancelled')
  return `[ -e ${done} ] || { touch ${done}; ${cancel}; while kill -0 $PPID; do sleep 0.1; done; }`
}

/** Calls `act` during each health check of the canary, counted from 0, before the check passes. */
async function onCheckOfCanary(t: TestContext, fleet: FleetStage, act: (nth: number) => Promise<void>): Promise<void> {
  let checks = 0
  const { url } = await serve(t, async (_, response) => {
    await act(checks++)
    response.end()
  })
  fleet.checkHealth('app-1', new URL(url))
}

function read(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8')
}
