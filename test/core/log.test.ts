import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { reportStatusOf } from '../../src/core/state-machine.ts'

describe('reportStatusOf', () => {
  const cases = {
    success: 'success',
    failed: 'failed',
    rolled_back: 'rolled_back',
    interrupted: 'failed',
    inconsistent: 'failed',
  } as const
  for (const [outcome, status] of Object.entries(cases)) {
    it(`reports ${status} to the hub for ${outcome}`, () => {
      assert.equal(reportStatusOf(outcome as keyof typeof cases), status)
    })
  }
})
