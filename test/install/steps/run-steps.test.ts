import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parseHostConfig } from '../../../src/core/plan/host-config.ts'
import type { PlanStep } from '../../../src/core/plan/plan-step.ts'
import { installPath, type Place } from '../../../src/install/host/layout.ts'
import { runSteps } from '../../../src/install/steps/run-steps.ts'
import type { InstallOrder, StepContext } from '../../../src/install/steps/step-context.ts'
import { contextOf, deploymentOf, partOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost, rowOf } from '../prepared-host.ts'
import { writeTree } from '../temporary-directory.ts'

const COMMON = { dependsOn: [], snapshot: false, file: 'install.yaml', line: 1, column: 1 }
const STEPS: PlanStep[] = ['one', 'two', 'three'].map(id => ({ ...COMMON, id, action: 'prepare' }))
const NOTIFY: PlanStep = { ...COMMON, id: 'two', action: 'notify', event: 'deployed' }
const GONE: Place = { shelf: 'extensions', id: 'gone', directory: 'extensions' }

async function contextWith(t: TestContext, order: Partial<InstallOrder> = {}, signal?: AbortSignal) {
  const layout = await prepareTemporaryHost(t)
  const deployment = deploymentOf(layout, signal === undefined ? {} : { tools: { signal } })
  return await contextOf(t, deployment, { steps: STEPS, ...order })
}

function results({ deployment }: StepContext): unknown[] {
  return deployment.record.steps.map(({ id, status, error }) => [id, status, error])
}

async function doNothing(): Promise<void> {}

describe('runSteps', () => {
  it('records the end of each step, in order', async t => {
    const context = await contextWith(t, { skipped: new Set(['two']) })
    await runSteps(context, doNothing)
    assert.deepEqual(results(context), [
      ['one', 'done', null],
      ['two', 'skipped', null],
      ['three', 'done', null],
    ])
  })

  it('continues after a step that only warns, and records the reason', async t => {
    const [one, , three] = STEPS as [PlanStep, PlanStep, PlanStep]
    const hostConfig = parseHostConfig('version: 1\nnotify:\n  deployed: { command: [/bin/false] }\n', 'host.yaml')
    const context = await contextWith(t, { steps: [one, NOTIFY, three], hostConfig })
    await runSteps(context, doNothing)
    const warning = context.deployment.record.steps[1]?.error
    assert.match(warning ?? '', /\/bin\/false/)
    assert.deepEqual(results(context), [
      ['one', 'done', null],
      ['two', 'warned', warning],
      ['three', 'done', null],
    ])
  })

  it('notes the checks of the old version for a rollback, except for one that examines nothing', async t => {
    const healthcheck = { ...COMMON, id: 'ok', action: 'healthcheck', timeoutSeconds: 1, retries: 0 } as const
    const hostConfig = parseHostConfig(
      'version: 1\nplugins: {a: {healthcheck: {command: [/bin/true]}}, b: {}}\n',
      'host.yaml',
    )
    const context = await contextWith(t, { steps: [healthcheck], hostConfig })
    const parts = ['a', 'b'].map(id => partOf(context.deployment.layout, { id }))
    await runSteps({ ...context, order: { ...context.order, parts } }, doNothing)
    assert.deepEqual(
      context.transaction.healthchecks.map(({ id }) => id),
      ['a'],
    )
    assert.deepEqual(context.deployment.record.steps[0]?.checked, ['a'])
  })

  it('counts the parts of a health check that the message does not name', async t => {
    const ids = ['a', 'b', 'c', 'd', 'e', 'f', 'g']
    const healthcheck = { ...COMMON, id: 'ok', action: 'healthcheck', timeoutSeconds: 5, retries: 0 } as const
    const checks = ids.map(id => `${id}: {healthcheck: {command: [/bin/true, ${id}]}}`)
    const hostConfig = parseHostConfig(`version: 1\nplugins: {${checks.join(', ')}}\n`, 'host.yaml')
    const context = await contextWith(t, { steps: [healthcheck], hostConfig })
    const parts = ids.map(id => partOf(context.deployment.layout, { id }))
    await runSteps({ ...context, order: { ...context.order, parts } }, doNothing)
    assert.match(context.deployment.record.steps[0]?.did ?? '', /^a: true succeeded.*, e: true succeeded and 2 more$/)
  })

  it('stops at the first step that throws, and throws its error', async t => {
    const context = await contextWith(t)
    const cause = new Error('no')
    const beforeStep = async (step: PlanStep) => {
      if (step.id === 'two') throw cause
    }
    await assert.rejects(runSteps(context, beforeStep), error => error === cause)
    assert.deepEqual(results(context), [
      ['one', 'done', null],
      ['two', 'failed', 'no'],
      ['three', 'not_run', null],
    ])
  })

  it('stops at a step that fails, and throws an error with its code', async t => {
    const install: PlanStep = { ...COMMON, id: 'files', action: 'install_plugin', plugin: 'unknown' }
    const context = await contextWith(t, { steps: [install, ...STEPS] })
    await assert.rejects(runSteps(context, doNothing), { code: 'step_failed' })
    assert.deepEqual(
      context.deployment.record.steps.map(({ id, status }) => [id, status]),
      [
        ['files', 'failed'],
        ['one', 'not_run'],
        ['two', 'not_run'],
        ['three', 'not_run'],
      ],
    )
  })

  it('starts no step once the run is cancelled', async t => {
    const context = await contextWith(t, {}, AbortSignal.abort(new Error('cancelled')))
    await assert.rejects(runSteps(context, async () => assert.fail('a step was run')))
    assert.deepEqual(results(context), [
      ['one', 'failed', 'cancelled'],
      ['two', 'not_run', null],
      ['three', 'not_run', null],
    ])
  })

  it('removes, before the first step, the parts that the new version does not contain', async t => {
    const context = await contextWith(t, { removals: [{ ...GONE, installed: rowOf({ id: GONE.id }) }] })
    const { layout } = context.deployment
    const path = installPath(layout, GONE)
    writeTree(path, { main: 'old' })
    const found: [string, boolean][] = []
    await runSteps(context, async ({ id }) => void found.push([id, existsSync(path)]))
    assert.deepEqual(found, [
      ['one', false],
      ['two', false],
      ['three', false],
    ])
    assert.ok(existsSync(join(layout.snapshots, 'extensions/gone/1-2.0.0/main')))
    assert.equal(context.results.get('extensions/gone')?.snapshot, '1-2.0.0')
    assert.deepEqual(results(context)[0], ['extensions/gone', 'done', null])
  })

  it('removes only the record of a part that is already gone', async t => {
    const context = await contextWith(t, { removals: [{ ...GONE, installed: rowOf({ id: GONE.id }) }] })
    await runSteps(context, doNothing)
    assert.deepEqual(results(context)[0], ['extensions/gone', 'unchanged', null])
    assert.equal(context.transaction.changed, false)
  })
})
