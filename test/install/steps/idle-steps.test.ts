import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { describe, it, type TestContext } from 'node:test'
import type { PlanStep } from '../../../src/core/plan/plan-step.ts'
import { makeOpenDirectorySync } from '../../../src/install/files/durable-files.ts'
import { settingsPath } from '../../../src/install/host/layout.ts'
import { findIdleSteps } from '../../../src/install/steps/idle-steps.ts'
import type { IntactPart, Part } from '../../../src/install/steps/parts/part.ts'
import type { InstallOrder } from '../../../src/install/steps/step-context.ts'
import { contextOf, deploymentOf, partOf, previousOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost, rowOf } from '../prepared-host.ts'

const BASE = { dependsOn: [], snapshot: false, file: 'install.yaml', line: 1, column: 1 }
const step = (id: string, more: object): PlanStep => ({ ...BASE, id, ...more }) as unknown as PlanStep
const STEPS = [
  step('stop-a', { action: 'stop', plugin: 'a' }),
  step('a', { action: 'install_plugin', plugin: 'a' }),
  step('b', { action: 'install_plugin', plugin: 'b' }),
  step('env-b', { action: 'write_env', plugin: 'b', from: 'plugins/b/.env.template' }),
  step('db-b', { action: 'provision', plugin: 'b' }),
  step('up-a', { action: 'restart', plugin: 'a' }),
  step('on-b', { action: 'start', plugin: 'b' }),
  step('all', { action: 'restart' }),
  step('ok', { action: 'healthcheck', timeoutSeconds: 1, retries: 0 }),
  step('tell', { action: 'notify', event: 'done' }),
  step('other', { action: 'provision', plugin: 'not-installed' }),
]

interface Scene {
  /** Ids of the parts that are intact. */
  intact: readonly string[]
  order?: Partial<InstallOrder>
  hasSettings?: boolean
  redeploy?: boolean
}

async function idle(t: TestContext, { intact, order, hasSettings = true, redeploy = false }: Scene): Promise<string> {
  const layout = await prepareTemporaryHost(t)
  makeOpenDirectorySync(`${layout.root}/plugins`)
  if (hasSettings) writeFileSync(settingsPath(layout, { shelf: 'plugins', id: 'b', directory: 'plugins' }), '')
  const parts = ['a', 'b'].map((id): Part => {
    const { staged, tree, ...facts } = partOf(layout, {
      id,
      previous: previousOf({ shelf: 'plugins', id, directory: 'plugins' }),
    })
    const kept: IntactPart = { ...facts, intact: { tree_digest: null } }
    return intact.includes(id) ? kept : { ...facts, staged, tree }
  })
  const deployment = deploymentOf(layout, { request: { redeploy } })
  const { order: whole } = await contextOf(t, deployment, { steps: STEPS, parts, ...order })
  return [...findIdleSteps(deployment, whole)].join(' ')
}

describe('the steps that act on the host', () => {
  const removal = { shelf: 'plugins' as const, id: 'c', directory: 'plugins', installed: rowOf({ id: 'c' }) }
  const cases: Record<string, [Scene, string]> = {
    'are idle when every part is intact': [{ intact: ['a', 'b'] }, 'stop-a db-b up-a on-b all tell other'],
    'of a part that changes are not idle, nor are those for all parts or for no installed part': [
      { intact: ['b'] },
      'db-b on-b',
    ],
    'of a part whose settings are missing are not idle, even before the settings are created': [
      { intact: ['a', 'b'], hasSettings: false },
      'stop-a up-a',
    ],
    'of an intact part are not idle if one of them depends on a step that changes another part': [
      {
        intact: ['a'],
        order: {
          steps: [
            ...STEPS,
            step('ok-b', { action: 'healthcheck', plugin: 'b', dependsOn: ['b'] }),
            step('late-a', { action: 'start', plugin: 'a', dependsOn: ['ok-b'] }),
          ],
        },
      },
      '',
    ],
    'for all parts are not idle when one is removed': [
      { intact: ['a', 'b'], order: { removals: [removal] } },
      'stop-a db-b up-a on-b',
    ],
    'do not count as idle if the host config leaves them out': [
      { intact: ['a', 'b'], order: { skipped: new Set(['stop-a', 'up-a', 'on-b', 'all']) } },
      'db-b tell other',
    ],
    'are never idle with redeploy': [{ intact: ['a', 'b'], redeploy: true }, ''],
  }
  for (const [name, [scene, expected]] of Object.entries(cases)) {
    it(name, async t => {
      assert.equal(await idle(t, scene), expected)
    })
  }
})
