import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import type { PlanStep } from '../../../src/core/plan/plan-step.ts'
import { StepLedger } from '../../../src/install/steps/step-ledger.ts'
import { contextOf, deploymentOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost } from '../prepared-host.ts'

const COMMON = { dependsOn: [], snapshot: false, file: 'install.yaml', line: 1, column: 1 }
const STEPS = ['idle', 'first', 'second'].map((id): PlanStep => ({ ...COMMON, id, action: 'prepare' }))
const [IDLE, FIRST, SECOND] = STEPS as [PlanStep, PlanStep, PlanStep]

/** A ledger whose clock the test controls. */
async function makeLedger(t: TestContext) {
  const { deployment } = await contextOf(t, deploymentOf(await prepareTemporaryHost(t)), { steps: STEPS })
  const { record } = deployment
  let now = 1000
  const pass = (milliseconds: number) => {
    now += milliseconds
  }
  const durations = () => record.steps.map(step => step.duration_ms)
  return { ledger: new StepLedger(record, STEPS, () => now), pass, durations }
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
    for (const step of STEPS) await ledger.end(step, 'done')
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
