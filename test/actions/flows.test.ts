import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { FLOWS } from '../../src/actions/flows.ts'
import { MARKETPLACE_TRANSITIONS } from '../../src/marketplace/states.ts'
import { PROJECT_TRANSITIONS } from '../../src/project/states.ts'

describe('FLOWS', () => {
  it('has the state tables of both contracts, so that a run of either one recovers a run of the other', () => {
    assert.deepEqual(Object.keys(FLOWS).toSorted(), ['marketplace', 'project'])
    assert.equal(FLOWS.marketplace, MARKETPLACE_TRANSITIONS)
    assert.equal(FLOWS.project, PROJECT_TRANSITIONS)
  })
})
