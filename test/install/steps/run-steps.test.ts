import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import type { PlanStep } from '../../../src/core/plan/plan-step.ts'
import { runSteps } from '../../../src/install/steps/run-steps.ts'
import { createDeploymentRecord } from '../../../src/install/transaction/record.ts'
import { factsOf } from '../prepared-host.ts'

const STEPS: PlanStep[] = ['one', 'two', 'three'].map(id => ({
  id,
  action: 'prepare',
  dependsOn: [],
  snapshot: false,
  file: 'install.yaml',
  line: 1,
  column: 1,
}))

function results(record: ReturnType<typeof createDeploymentRecord>): unknown[] {
  return record.steps.map(({ id, status, error }) => [id, status, error])
}

describe('runSteps', () => {
  it('records each step as it ended, in their order', async () => {
    const record = createDeploymentRecord(factsOf(), [])
    await runSteps(STEPS, record, new AbortController().signal, async step => (step.id === 'two' ? 'skipped' : 'done'))
    assert.deepEqual(results(record), [
      ['one', 'done', null],
      ['two', 'skipped', null],
      ['three', 'done', null],
    ])
  })

  it('goes on after a step that only warns, and records why it did', async () => {
    const record = createDeploymentRecord(factsOf(), [])
    await runSteps(STEPS, record, new AbortController().signal, async step =>
      step.id === 'two' ? { warning: 'nobody was told' } : 'done',
    )
    assert.deepEqual(results(record), [
      ['one', 'done', null],
      ['two', 'warned', 'nobody was told'],
      ['three', 'done', null],
    ])
  })

  it('stops at the first that throws, and throws that', async () => {
    const record = createDeploymentRecord(factsOf(), [])
    const cause = new Error('no')
    const perform = async (step: PlanStep) => {
      if (step.id === 'two') throw cause
      return 'done' as const
    }
    await assert.rejects(runSteps(STEPS, record, new AbortController().signal, perform), error => error === cause)
    assert.deepEqual(results(record), [
      ['one', 'done', null],
      ['two', 'failed', 'no'],
      ['three', 'not_run', null],
    ])
  })

  it('starts no step once the run is cancelled', async () => {
    const record = createDeploymentRecord(factsOf(), [])
    const signal = AbortSignal.abort(new Error('cancelled'))
    await assert.rejects(runSteps(STEPS, record, signal, async () => assert.fail('was run')))
    assert.deepEqual(results(record), [
      ['one', 'failed', 'cancelled'],
      ['two', 'not_run', null],
      ['three', 'not_run', null],
    ])
  })
})
