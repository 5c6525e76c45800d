import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parseHostConfig } from '../../../src/core/plan/host-config.ts'
import type { PlanStep } from '../../../src/core/plan/step.ts'
import { installPath, type Place } from '../../../src/install/host/layout.ts'
import type { DeploymentTools } from '../../../src/install/run/deployment.ts'
import type { InstallOrder, StepContext } from '../../../src/install/steps/context.ts'
import { runSteps, StepLedger } from '../../../src/install/steps/run-steps.ts'
import { writeTree } from '../../folders.ts'
import { contextOf, deploymentOf, partOf } from '../prepared-deployment.ts'
import { collectLog, prepareTemporaryHost, rowOf } from '../prepared-host.ts'

const COMMON = { dependsOn: [], snapshot: false, file: 'install.yaml', line: 1, column: 1 }
const STEPS: PlanStep[] = ['one', 'two', 'three'].map(id => ({ ...COMMON, id, action: 'prepare' }))
const NOTIFY: PlanStep = { ...COMMON, id: 'two', action: 'notify', event: 'deployed' }
const GONE: Place = { shelf: 'extensions', id: 'gone', directory: 'extensions' }

async function contextWith(t: TestContext, order: Partial<InstallOrder> = {}, tools: Partial<DeploymentTools> = {}) {
  const layout = await prepareTemporaryHost(t)
  const deployment = deploymentOf(layout, { tools })
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
    const log = collectLog()
    const context = await contextWith(t, { steps: [one, NOTIFY, three], hostConfig }, { log })
    await runSteps(context, doNothing)
    const warning = context.deployment.record.steps[1]?.error
    assert.match(warning ?? '', /\/bin\/false/)
    assert.ok(log.lines.includes(`warning Step two: ${warning}`), log.lines.join('\n'))
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
    const context = await contextWith(t, {}, { signal: AbortSignal.abort(new Error('cancelled')) })
    await assert.rejects(
      runSteps(context, async () => assert.fail('a step was run')),
      { message: 'cancelled' },
    )
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

const LEDGER_STEPS = ['idle', 'first', 'second'].map((id): PlanStep => ({ ...COMMON, id, action: 'prepare' }))
const [IDLE, FIRST, SECOND] = LEDGER_STEPS as [PlanStep, PlanStep, PlanStep]

/** A ledger whose clock the test controls. */
async function makeLedger(t: TestContext) {
  const { deployment } = await contextOf(t, deploymentOf(await prepareTemporaryHost(t)), { steps: LEDGER_STEPS })
  const { record } = deployment
  let now = 1000
  const pass = (milliseconds: number) => {
    now += milliseconds
  }
  const durations = () => record.steps.map(step => step.duration_ms)
  return { ledger: new StepLedger(record, LEDGER_STEPS, () => now), pass, durations }
}

describe('StepLedger', () => {
  it('divides the time of shared work among its steps, and adds the time of each step itself', async t => {
    const { ledger, pass, durations } = await makeLedger(t)
    pass(600)
    ledger.share([FIRST, SECOND])
    pass(40)
    ledger.share([SECOND])
    await ledger.end(IDLE, 'done')
    pass(7)
    await ledger.end(FIRST, 'done')
    await ledger.end(SECOND, 'done')
    assert.deepEqual(durations(), [0, 307, 340])
  })

  it('charges no step for work that belongs to none', async t => {
    const { ledger, pass, durations } = await makeLedger(t)
    pass(600)
    ledger.share([])
    for (const step of LEDGER_STEPS) await ledger.end(step, 'done')
    assert.deepEqual(durations(), [0, 0, 0])
  })

  it('charges a failed step for its share', async t => {
    const { ledger, pass, durations } = await makeLedger(t)
    pass(600)
    ledger.share([FIRST, SECOND])
    await ledger.end(IDLE, 'done')
    ledger.reach(FIRST)
    pass(5)
    await ledger.fail(new Error('no'))
    assert.deepEqual(durations(), [0, 305, 0])
  })
})
