import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import type { Outcome } from '../../../src/core/state-machine.ts'
import { acquireLock } from '../../../src/install/host/lock.ts'
import { HANG_LIMIT_MS, sampled } from '../../extent.ts'
import { commandsIn } from '../harness/evidence.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage } from '../harness/stage.ts'
import { forEver, openGate, type Route } from '../harness/untrusted-hub.ts'

const HANGS = ['/bin/sh', '-c', 'sleep 3600']
const HANGS_DEAFLY = ['/bin/sh', '-c', 'trap "" TERM; while :; do sleep 1; done']

interface Row {
  name: string
  /** Makes a request, a command or the lock hang, and returns the inputs of the run. */
  prepare(t: TestContext, stage: Stage): Promise<Record<string, string>>
  outcome: Outcome
  code: string
}

const rows: Row[] = [
  {
    name: 'the hub never sends the artifact',
    prepare: async (t, stage) => ({ 'hub-url': await hangAt(t, stage, 'artifact'), 'timeout-minutes': '0.02' }),
    outcome: 'failed',
    code: 'timeout',
  },
  {
    name: 'the hub never answers the report',
    prepare: async (t, stage) => ({ 'deployments-url': await hangAt(t, stage, 'report') }),
    outcome: 'success',
    code: '',
  },
  {
    name: 'the hub neither sends the artifact nor answers the report',
    prepare: async (t, stage) => ({
      'hub-url': await hangAt(t, stage, 'artifact'),
      'timeout-minutes': '0.02',
      'deployments-url': await hangAt(t, stage, 'report'),
    }),
    outcome: 'failed',
    code: 'timeout',
  },
  {
    name: 'another process keeps the lock',
    async prepare(t, stage) {
      const path = join(stage.root, '.hub-deploy/lock')
      const lock = await acquireLock({ path, timeoutMs: 0, runUrl: null, log: () => {} })
      t.after(() => lock.release())
      return { 'lock-timeout-seconds': '1' }
    },
    outcome: 'failed',
    code: 'locked',
  },
  {
    name: "the host's command hangs",
    prepare: (_t, stage) => useHostConfig(stage, 'provision, plugin: greeter', provisionBy(HANGS)),
    outcome: 'rolled_back',
    code: 'step_timed_out',
  },
  {
    name: "the host's command hangs and ignores SIGTERM",
    prepare: (_t, stage) => useHostConfig(stage, 'provision, plugin: greeter', provisionBy(HANGS_DEAFLY)),
    outcome: 'rolled_back',
    code: 'step_timed_out',
  },
  {
    name: 'the command that notifies hangs',
    prepare: (_t, stage) =>
      useHostConfig(stage, 'notify, event: deployed', { notify: { deployed: { command: HANGS, timeout: '1s' } } }),
    outcome: 'success',
    code: '',
  },
  {
    name: 'the health check hangs',
    prepare: (_t, stage) =>
      useHostConfig(stage, 'healthcheck, plugin: greeter, timeout: 1, retries: 1', {
        plugins: { greeter: { healthcheck: { command: HANGS } } },
      }),
    outcome: 'rolled_back',
    code: 'unhealthy',
  },
]

describe('a run ends by its timeouts', { concurrency: 4 }, () => {
  for (const { name, prepare, outcome, code } of sampled(rows, 1)) {
    it(`when ${name}`, { timeout: HANG_LIMIT_MS }, async t => {
      const stage = await openStage()
      t.after(() => stage.close())
      await stage.publish('1.0.0', pluginFiles('1.0.0'))
      assert.equal((await stage.deploy()).exitCode, 0)
      await stage.publish('2.0.0', pluginFiles('2.0.0'))
      const inputs = await prepare(t, stage)
      const { outputs, log } = await stage.deploy(inputs)
      assert.deepEqual([outputs['outcome'], outputs['error-code']], [outcome, code], log)
      // The check also hangs for the restored version, which is a second error.
      const errors = outcome === 'success' ? 0 : code === 'unhealthy' ? 2 : 1
      assert.equal(commandsIn(log, 'error').length, errors, log)
    })
  }
})

async function hangAt(t: TestContext, stage: Stage, where: Route): Promise<string> {
  let requests = 0
  const gate = await openGate(t, stage.hub.url, route => {
    if (route !== where) return undefined
    requests++
    return forEver()
  })
  t.after(() => assert.equal(requests, 1, 'a request that has timed out must not be repeated'))
  return gate.url
}

/** Writes a plan that ends with this action, and the host config that the action needs. Returns the inputs for them. */
async function useHostConfig(stage: Stage, action: string, config: object): Promise<Record<string, string>> {
  stage.writePlan(`${PLUGIN_PLAN}  - {id: last, depends_on: [files], action: ${action}}\n`)
  writeFileSync(join(stage.workspace.path, 'host-config.yaml'), JSON.stringify({ version: 1, ...config }))
  return { 'host-config': 'host-config.yaml' }
}

function provisionBy(command: readonly string[]): object {
  return { provision: { greeter: { command, timeout: '1s' } } }
}
