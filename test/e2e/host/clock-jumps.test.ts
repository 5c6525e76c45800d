import assert from 'node:assert/strict'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { listHosts } from '../../../hub/marketplace/reports.ts'
import { listDeployments } from '../../../hub/project/reports.ts'
import type { ActionResult } from '../../../local/runner.ts'
import { acquireLock } from '../../../src/install/host/lock.ts'
import { HANG_LIMIT_MS, sampled, whyLeftToCi } from '../../extent.ts'
import { readLocalReport } from '../harness/evidence.ts'
import { filesWith, openProjectStage } from '../harness/project-stage.ts'
import {
  openRetainingHost,
  openStage,
  PLUGIN_PLAN,
  pluginFiles,
  rollBack,
  SERVICE_PLAN,
  type Stage,
  writeFiles,
} from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const PRELOAD = join(import.meta.dirname, '../harness/jumping-date.mjs')

async function stageWithPlugin(t: TestContext): Promise<Stage> {
  const stage = await openStage()
  t.after(() => stage.close())
  await stage.publish('1.0.0', pluginFiles('1.0.0'))
  return stage
}

/** Starts a service of the host that is healthy from its third probe onwards. */
async function startService(t: TestContext): Promise<string> {
  let probes = 0
  const server = createServer((_, response) => response.writeHead(++probes < 3 ? 503 : 200).end())
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

function failAfterSwitch(stage: Stage, script: string): void {
  stage.writePlan(`${PLUGIN_PLAN}  - {id: work, action: provision, plugin: greeter, depends_on: [files]}\n`)
  const config = { version: 1, provision: { greeter: { command: ['/bin/sh', '-c', script] } } }
  writeFileSync(join(stage.workspace.path, 'host.yaml'), JSON.stringify(config))
}

for (const hours of sampled([1, -1], 1)) {
  describe(`a run during which the host's clock repeatedly jumps by ${hours} h`, {
    timeout: HANG_LIMIT_MS,
  }, () => {
    const env = { NODE_OPTIONS: `--import=${PRELOAD}`, JUMP_MS: String(hours * 3_600_000) }

    it('deploys, and checks health for the full time', { skip: ONLY_IN_CI }, async t => {
      const stage = await stageWithPlugin(t)
      stage.writePlan(
        `${PLUGIN_PLAN}  - {id: ok, depends_on: [files], action: healthcheck, plugin: greeter, timeout: 60}\n`,
      )
      const healthcheck = { http: await startService(t), interval: 1, stable_for: 1 }
      const config = { version: 1, plugins: { greeter: { healthcheck } } }
      writeFileSync(join(stage.workspace.path, 'host.yaml'), JSON.stringify(config))
      const { outputs, log } = await stage.deploy({ 'host-config': 'host.yaml', 'timeout-minutes': '1' }, { env })
      assert.deepEqual([outputs['outcome'], outputs['reported']], ['success', 'true'], log)
    })

    it('waits for the lock until it is free', { skip: whyLeftToCi() }, async t => {
      const stage = await stageWithPlugin(t)
      assert.equal((await stage.deploy()).exitCode, 0)
      const path = join(stage.root, '.hub-deploy/lock')
      const lock = await acquireLock({ path, timeoutMs: 0, runUrl: null, log: () => {} })
      const release = (text: string): void => {
        if (text.includes('Waiting for the lock')) lock.release()
      }
      const { outputs, log } = await stage.deploy({ 'lock-timeout-seconds': '600' }, { env, onLog: release })
      assert.equal(outputs['outcome'], 'success', log)
    })

    for (const [when, isDrift] of Object.entries({ before: true, during: false }))
      it(`detects that a file of the old version was changed ${when} it`, async t => {
        const stage = await stageWithPlugin(t)
        assert.equal((await stage.deploy()).exitCode, 0)
        await stage.publish('2.0.0', pluginFiles('2.0.0'))
        if (isDrift) writeFiles(stage.root, { 'plugins/greeter/src/main.py': 'of the host' })
        const old = join(stage.root, '.hub-deploy/snapshots/plugins/greeter/1-1.0.0/src/main.py')
        failAfterSwitch(stage, isDrift ? 'exit 1' : `echo changed >${old}; exit 1`)
        const result = await stage.deploy({ 'host-config': 'host.yaml' }, { env })
        const { outcome, rollback } = readLocalReport(result)
        assert.deepEqual([outcome, rollback?.verified], ['rolled_back', null], result.log)
        assert.equal(
          rollback?.problems.some(found => found.includes('src/main.py was written')),
          !isDrift,
        )
      })

    it('fails with locked after lock-timeout-seconds', { skip: whyLeftToCi() }, async t => {
      const stage = await stageWithPlugin(t)
      assert.equal((await stage.deploy()).exitCode, 0)
      const path = join(stage.root, '.hub-deploy/lock')
      const lock = await acquireLock({ path, timeoutMs: 0, runUrl: null, log: () => {} })
      t.after(() => lock.release())
      const { outputs, log } = await stage.deploy({ 'lock-timeout-seconds': '1' }, { env })
      assert.equal(outputs['error-code'], 'locked', log)
    })
  })
}

const CLOCKS: Readonly<Record<string, readonly number[]>> = {
  'was two hours ahead for the second version': [0, 2, 0],
  'was set back for the last version': [0, 0, -2],
  'jumped both ways': [0, 9000, -9000],
}
const VERSIONS = ['1.0.0', '2.0.0', '3.0.0']

/** A run on a host whose clock is so many hours ahead. */
function hoursAhead(hours: number) {
  return { env: { NODE_OPTIONS: `--import=${PRELOAD}`, AHEAD_MS: String(hours * 3_600_000) } }
}

type RollBack = (toVersion: string) => Promise<ActionResult>

/** Rolls back twice, then to 3.0.0, then once more. */
async function rollBackOften(rollBackTo: RollBack): Promise<(string | undefined)[]> {
  const restored: (string | undefined)[] = []
  for (const toVersion of ['', '', '3.0.0', '']) {
    const { outputs } = await rollBackTo(toVersion)
    restored.push(outputs['error-code'] || outputs['running-version'])
  }
  return restored
}

for (const [clock, hours] of sampled(Object.entries(CLOCKS), 1)) {
  const clockOf = (version: string) => hoursAhead(hours[VERSIONS.indexOf(version)] ?? 0)

  describe(`a host whose clock ${clock}`, { timeout: HANG_LIMIT_MS }, () => {
    for (const [kind, slug] of Object.entries({ plugin: 'greeter', service: 'clock' } as const))
      it(`rolls a ${kind} back to the version before, keeps the newest files, and is shown as it is`, async t => {
        const [stage, isPlugin] = [await openStage(), kind === 'plugin']
        t.after(() => stage.close())
        if (!isPlugin) stage.writePlan(SERVICE_PLAN)
        const subject = { kind: isPlugin ? 'plugin' : 'service', slug } as const
        for (const version of VERSIONS) {
          const files = isPlugin ? pluginFiles(version) : { 'run.sh': `echo ${version}\n` }
          await stage.publish(version, files, subject)
          const inputs = { ...subject, version, 'keep-snapshots': '2', 'keep-reports': '2' }
          const { outputs, log } = await stage.deploy(inputs, clockOf(version))
          assert.deepEqual([outputs['outcome'], outputs['reported']], ['success', 'true'], log)
        }
        const own = join(stage.root, '.hub-deploy')
        const reports = readdirSync(join(own, 'reports')).toSorted()
        const versionIn = (text: string): unknown => JSON.parse(text).version
        assert.deepEqual(
          reports.map(name => versionIn(readFileSync(join(own, 'reports', name), 'utf8'))),
          ['2.0.0', '3.0.0'],
        )
        const audit = readFileSync(join(own, 'audit.jsonl'), 'utf8').trimEnd().split('\n')
        assert.deepEqual(audit.map(versionIn), VERSIONS)
        const [shown] = listHosts(stage.store, subject)
        assert.equal(shown?.running_version, '3.0.0')
        const rollBackTo: RollBack = to => rollBack(stage, { kind, id: slug, 'to-version': to })
        assert.deepEqual(await rollBackOften(rollBackTo), ['2.0.0', '1.0.0', '3.0.0', '1.0.0'])
      })

    it('rolls a project back to the version before, and is shown as it is', { skip: ONLY_IN_CI }, async t => {
      const stage = await openProjectStage()
      t.after(() => stage.close())
      for (const version of VERSIONS) {
        await stage.publish(version, filesWith(version))
        const { outputs, log } = await stage.deploy({ version }, clockOf(version))
        assert.deepEqual([outputs['outcome'], outputs['reported']], ['success', 'true'], log)
      }
      const shown = listDeployments(stage.store, 10).map(({ version }) => version)
      assert.deepEqual(shown, VERSIONS.toReversed())
      const rollBackTo: RollBack = to => rollBack(stage, { id: '', 'project-id': 'shop', 'to-version': to })
      assert.deepEqual(await rollBackOften(rollBackTo), ['2.0.0', '1.0.0', '3.0.0', '1.0.0'])
    })
  })
}

describe('a host that has not counted its installations', { timeout: HANG_LIMIT_MS }, () => {
  /** Removes the numbers, as if another release had written the record. */
  function forgetNumbers({ root }: Stage): void {
    const path = join(root, '.hub-deploy/installed.json')
    const withoutNumber = (key: string, value: unknown) => (/^installations?$/.test(key) ? undefined : value)
    writeFileSync(path, JSON.stringify(JSON.parse(readFileSync(path, 'utf8'), withoutNumber)))
  }

  it('names its versions instead of choosing one, until the next deployment', async t => {
    const stage = await openRetainingHost(t)
    forgetNumbers(stage)
    const refused = await rollBack(stage)
    assert.deepEqual([refused.outputs['outcome'], refused.outputs['error-code']], ['failed', 'no_snapshot'])
    assert.match(refused.log, /The host has 1\.0\.0\. .*name it in to-version/)
    await stage.publish('3.0.0', pluginFiles('3.0.0'))
    const { exitCode, log } = await stage.deploy({ version: '3.0.0' }, hoursAhead(-9000))
    assert.equal(exitCode, 0, log)
    for (const [toVersion, restored] of [
      ['', '2.0.0'],
      ['1.0.0', '1.0.0'],
    ] as const) {
      const { outputs, log } = await rollBack(stage, { 'to-version': toVersion })
      assert.equal(outputs['running-version'], restored, log)
    }
  })
})
