import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { createStateMachine } from '../../src/core/state-machine.ts'
import { type DeployState, MARKETPLACE_TRANSITIONS } from '../../src/marketplace/deployment.ts'

/** Taken from the contract's flow, not from the table under test. */
const ALLOWED: readonly [DeployState, DeployState][] = [
  ['pending', 'fetching'],
  ['fetching', 'verifying_signature'],
  ['fetching', 'failed'],
  ['verifying_signature', 'extracting'],
  ['verifying_signature', 'failed'],
  ['extracting', 'loading_plan'],
  ['extracting', 'failed'],
  ['loading_plan', 'resolving_sequence'],
  ['loading_plan', 'failed'],
  ['resolving_sequence', 'installing'],
  ['resolving_sequence', 'failed'],
  ['installing', 'healthchecking'],
  ['installing', 'failed'],
  ['installing', 'rolled_back'],
  ['healthchecking', 'succeeded'],
  ['healthchecking', 'failed'],
  ['healthchecking', 'rolled_back'],
]
const STATES = Object.keys(MARKETPLACE_TRANSITIONS) as DeployState[]

function canEnter(from: DeployState, to: DeployState): boolean {
  const machine = createStateMachine(MARKETPLACE_TRANSITIONS, from, () => new Date(0))
  try {
    machine.enter(to)
    return true
  } catch {
    return false
  }
}

function reachableWithout(avoided: DeployState): Set<DeployState> {
  const seen = new Set<DeployState>(['pending'])
  for (const state of seen) {
    for (const next of STATES) if (next !== avoided && canEnter(state, next)) seen.add(next)
  }
  return seen
}

describe('MARKETPLACE_TRANSITIONS', () => {
  for (const from of STATES) {
    for (const to of STATES) {
      const isAllowed = ALLOWED.some(([a, b]) => a === from && b === to)
      it(`${isAllowed ? 'allows' : 'throws on'} ${from} → ${to}`, () => assert.equal(canEnter(from, to), isAllowed))
    }
  }

  for (const avoided of [
    'fetching',
    'verifying_signature',
    'extracting',
    'loading_plan',
    'resolving_sequence',
  ] as const) {
    it(`cannot reach installing without ${avoided}`, () => {
      assert.ok(!reachableWithout(avoided).has('installing'))
    })
  }

  it('cannot reach succeeded without installing and healthchecking', () => {
    for (const avoided of ['installing', 'healthchecking'] as const) {
      assert.ok(!reachableWithout(avoided).has('succeeded'))
    }
  })
})
