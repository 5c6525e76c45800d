import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { ROLLBACK_TRANSITIONS, type RollbackState } from '../../src/rollback/deployment.ts'

const STATES = Object.keys(ROLLBACK_TRANSITIONS) as RollbackState[]

function reachableWithout(avoided: RollbackState): Set<RollbackState> {
  const seen = new Set<RollbackState>(['pending'])
  for (const state of seen) for (const next of ROLLBACK_TRANSITIONS[state]) if (next !== avoided) seen.add(next)
  return seen
}

describe('ROLLBACK_TRANSITIONS', () => {
  for (const avoided of ['finding_snapshots', 'verifying_snapshots', 'loading_plan', 'resolving_sequence'] as const) {
    it(`cannot reach installing without ${avoided}`, () => {
      assert.ok(!reachableWithout(avoided).has('installing'))
    })
  }

  it('ends in three states, and reaches rolled_back only from states that may have changed the host', () => {
    assert.deepEqual(
      STATES.filter(state => ROLLBACK_TRANSITIONS[state].length === 0),
      ['succeeded', 'failed', 'rolled_back'],
    )
    const before = STATES.filter(state => ROLLBACK_TRANSITIONS[state].includes('rolled_back'))
    assert.deepEqual(before, ['installing', 'healthchecking'])
  })
})
