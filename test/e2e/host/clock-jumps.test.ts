import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { acquireLock } from '../../../src/install/host/lock.ts'
import { HANG_LIMIT_MS, sampled, whyLeftToCi } from '../../extent.ts'
import { readLocalReport } from '../harness/evidence.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage, writeFiles } from '../harness/stage.ts'

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

    it('deploys, and checks health for the full time', async t => {
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
