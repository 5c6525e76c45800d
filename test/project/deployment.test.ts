import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { createStateMachine } from '../../src/core/state-machine.ts'
import { PROJECT_TRANSITIONS, type ProjectState } from '../../src/project/deployment.ts'

/** Taken from the contract's flow, not from the table under test. */
const FLOW: readonly ProjectState[] = [
  'pending',
  'authenticating',
  'requesting_artifact',
  'downloading',
  'verifying_signature',
  'obtaining_key',
  'decrypting',
  'extracting',
  'verifying_manifest',
  'validating_project',
  'resolving_sequence',
  'installing',
  'healthchecking',
  'notifying',
  'succeeded',
]
const ALLOWED: readonly [ProjectState, ProjectState][] = [
  ...FLOW.slice(1).map((state, index): [ProjectState, ProjectState] => [FLOW[index] as ProjectState, state]),
  ...FLOW.slice(1, -1).map((state): [ProjectState, ProjectState] => [state, 'failed']),
  ['installing', 'rolled_back'],
  ['healthchecking', 'rolled_back'],
  ['notifying', 'rolled_back'],
]
const STATES = Object.keys(PROJECT_TRANSITIONS) as ProjectState[]

function canEnter(from: ProjectState, to: ProjectState): boolean {
  const machine = createStateMachine(PROJECT_TRANSITIONS, from, () => new Date(0))
  try {
    machine.enter(to)
    return true
  } catch {
    return false
  }
}

function reachableWithout(avoided: ProjectState): Set<ProjectState> {
  const seen = new Set<ProjectState>(['pending'])
  for (const state of seen) {
    for (const next of STATES) if (next !== avoided && canEnter(state, next)) seen.add(next)
  }
  return seen
}

describe('PROJECT_TRANSITIONS', () => {
  it('has the states of the flow and its ends, and no others', () => {
    assert.deepEqual(STATES.toSorted(), [...FLOW, 'failed', 'rolled_back'].toSorted())
  })

  for (const from of STATES) {
    for (const to of STATES) {
      const isAllowed = ALLOWED.some(([a, b]) => a === from && b === to)
      it(`${isAllowed ? 'allows' : 'throws on'} ${from} → ${to}`, () => assert.equal(canEnter(from, to), isAllowed))
    }
  }

  for (const avoided of FLOW.slice(1, FLOW.indexOf('installing'))) {
    it(`cannot reach installing without ${avoided}`, () => assert.ok(!reachableWithout(avoided).has('installing')))
  }

  it('cannot reach the key without the signature', () => {
    assert.ok(!reachableWithout('verifying_signature').has('obtaining_key'))
  })

  for (const avoided of ['installing', 'healthchecking', 'notifying'] as const) {
    it(`cannot reach succeeded without ${avoided}`, () => assert.ok(!reachableWithout(avoided).has('succeeded')))
  }
})
