import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import type { Outcome } from '../../src/core/outcome.ts'
import { acquireLock } from '../../src/install/host/lock.ts'
import { commandsIn } from './harness/evidence.ts'
import { forEver, openGate, type Route } from './harness/hub-gate.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage } from './harness/stage.ts'

/** How much longer than its time-outs a run may take (I7). */
const SLACK_MS = 5000
const HANGS = ['/bin/sh', '-c', 'sleep 600']
const HANGS_DEAFLY = ['/bin/sh', '-c', 'trap "" TERM; while :; do sleep 1; done']

interface Row {
  name: string
  /** Has something hang; returns the inputs of the run. */
  prepare(t: TestContext, stage: Stage): Promise<Record<string, string>>
  /** All the time-outs that the run goes through. */
  timeoutsMs: number
  outcome: Outcome
  code: string
}

const rows: Row[] = [
  {
    name: 'the artifact does not come',
    prepare: async (t, stage) => ({ 'hub-url': await hangAt(t, stage, 'artifact'), 'timeout-minutes': '0.02' }),
    timeoutsMs: 1200,
    outcome: 'failed',
    code: 'timeout',
  },
  {
    name: 'the report is not taken',
    prepare: async (t, stage) => ({ 'deployments-url': await hangAt(t, stage, 'report') }),
    timeoutsMs: 10_000,
    outcome: 'success',
    code: '',
  },
  {
    name: 'neither the artifact comes nor the report is taken',
    prepare: async (t, stage) => ({
      'hub-url': await hangAt(t, stage, 'artifact'),
      'timeout-minutes': '0.02',
      'deployments-url': await hangAt(t, stage, 'report'),
    }),
    timeoutsMs: 11_200,
    outcome: 'failed',
    code: 'timeout',
  },
  {
    name: 'the host is locked',
    async prepare(t, stage) {
      const path = join(stage.root, '.hub-deploy/lock')
      const lock = await acquireLock({ path, timeoutMs: 0, runUrl: null, log: () => {} })
      t.after(() => lock.release())
      return { 'lock-timeout-seconds': '1' }
    },
    timeoutsMs: 1000,
    outcome: 'failed',
    code: 'locked',
  },
  {
    name: "the host's command hangs",
    prepare: (_t, stage) => useHostConfig(stage, 'provision, plugin: greeter', provisionBy(HANGS)),
    timeoutsMs: 1000,
    outcome: 'rolled_back',
    code: 'step_timed_out',
  },
  {
    name: "the host's command hangs and does not listen to SIGTERM for its 5 s",
    prepare: (_t, stage) => useHostConfig(stage, 'provision, plugin: greeter', provisionBy(HANGS_DEAFLY)),
    timeoutsMs: 1000 + 5000,
    outcome: 'rolled_back',
    code: 'step_timed_out',
  },
  {
    name: 'the notice hangs',
    prepare: (_t, stage) =>
      useHostConfig(stage, 'notify, event: deployed', { notify: { deployed: { command: HANGS, timeout: '1s' } } }),
    timeoutsMs: 1000,
    outcome: 'success',
    code: '',
  },
  {
    name: 'the health check hangs',
    prepare: (_t, stage) =>
      useHostConfig(stage, 'healthcheck, plugin: greeter, timeout: 1, retries: 1', {
        plugins: { greeter: { healthcheck: { command: HANGS } } },
      }),
    timeoutsMs: 2000,
    outcome: 'rolled_back',
    code: 'unhealthy',
  },
]

describe('a run ends within its time-outs and 5 s', { concurrency: 4 }, () => {
  for (const { name, prepare, timeoutsMs, outcome, code } of rows) {
    it(`when ${name}`, async t => {
      const stage = await openStage()
      t.after(() => stage.close())
      await stage.publish('1.0.0', pluginFiles('1.0.0'))
      assert.equal((await stage.deploy()).exitCode, 0)
      await stage.publish('2.0.0', pluginFiles('2.0.0'))
      const inputs = await prepare(t, stage)
      const started = performance.now()
      const { outputs, log } = await stage.deploy(inputs)
      const tookMs = performance.now() - started
      assert.deepEqual([outputs['outcome'], outputs['error-code']], [outcome, code], log)
      assert.equal(commandsIn(log, 'error').length, outcome === 'success' ? 0 : 1, log)
      assert.ok(tookMs < timeoutsMs + SLACK_MS, `took ${Math.round(tookMs)} ms`)
    })
  }
})

async function hangAt(t: TestContext, stage: Stage, where: Route): Promise<string> {
  const gate = await openGate(t, stage.hub.url, route => (route === where ? forEver() : undefined))
  return gate.url
}

/** A plan that ends with this action, and the host config that it needs. */
async function useHostConfig(stage: Stage, action: string, config: object): Promise<Record<string, string>> {
  stage.writePlan(`${PLUGIN_PLAN}  - {id: last, depends_on: [files], action: ${action}}\n`)
  writeFileSync(join(stage.workspace.path, 'host-config.yaml'), JSON.stringify({ version: 1, ...config }))
  return { 'host-config': 'host-config.yaml' }
}

function provisionBy(command: readonly string[]): object {
  return { provision: { greeter: { command, timeout: '1s' } } }
}
