import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { FLOWS } from '../../src/actions/flows.ts'
import { MARKETPLACE_TRANSITIONS } from '../../src/marketplace/deployment.ts'
import { PROJECT_TRANSITIONS } from '../../src/project/deployment.ts'
import { ROLLBACK_TRANSITIONS } from '../../src/rollback/deployment.ts'

describe('FLOWS', () => {
  it('contains the state tables of all flows, so that a run of one can recover a run of any other', () => {
    assert.deepEqual(FLOWS, {
      marketplace: MARKETPLACE_TRANSITIONS,
      project: PROJECT_TRANSITIONS,
      rollback: ROLLBACK_TRANSITIONS,
    })
  })
})
