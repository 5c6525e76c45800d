import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import type { PlanStep } from '../../../src/core/plan/plan-step.ts'
import { performStep } from '../../../src/install/steps/perform-step.ts'
import { contextOf, deploymentOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost } from '../prepared-host.ts'

const AT = { dependsOn: [], snapshot: false, file: 'install.yaml', line: 1, column: 1 }

describe('a step about a part that the plan does not install', () => {
  const steps: readonly PlanStep[] = [
    { ...AT, id: 'files', action: 'install_plugin', plugin: 'web' },
    { ...AT, id: 'env', action: 'write_env', plugin: 'web', from: 'plugins/web/.env.template' },
  ]
  for (const step of steps) {
    it(`fails, and does not blame the host config (${step.action})`, async t => {
      const context = await contextOf(t, deploymentOf(await prepareTemporaryHost(t)), { steps: [step] })
      await assert.rejects(
        performStep(context, step),
        new DeploymentError('step_failed', 'This deployment contains no plugins/web: correct the plan.'),
      )
    })
  }
})

describe('a step that needs a host config', () => {
  const steps: readonly PlanStep[] = [
    { ...AT, id: 'up', action: 'restart', plugin: 'web' },
    { ...AT, id: 'ok', action: 'healthcheck', plugin: 'web', timeoutSeconds: 1, retries: 0 },
    { ...AT, id: 'db', action: 'provision', plugin: 'web' },
  ]
  for (const step of steps) {
    it(`fails without one, and names the input to set (${step.action})`, async t => {
      const context = await contextOf(t, deploymentOf(await prepareTemporaryHost(t)), { steps: [step] })
      await assert.rejects(
        performStep(context, step),
        new DeploymentError('step_failed', 'The plan needs a host config, but there is none: set host-config.'),
      )
    })
  }
})
