import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { createStateMachine, statesBetween, type Transitions } from '../../src/core/state-machine.ts'

const LIGHTS = { red: ['green'], green: ['red'], off: [] } as const
/** Two paths lead to `done`, and none leads out of it. */
const TRIP: Transitions<string> = {
  home: ['walk', 'ride'],
  walk: ['rest', 'home'],
  rest: ['done'],
  ride: ['done'],
  done: [],
}

describe('createStateMachine', () => {
  it('records each state with its time', () => {
    const times = [new Date(0), new Date(1500)]
    const machine = createStateMachine<keyof typeof LIGHTS>(LIGHTS, 'red', () => times.shift() as Date)
    assert.deepEqual(machine.enter('green'), { state: 'green', at: '1970-01-01T00:00:01.500Z' })
    assert.equal(machine.current, 'green')
    assert.deepEqual(machine.history, [
      { state: 'red', at: '1970-01-01T00:00:00.000Z' },
      { state: 'green', at: '1970-01-01T00:00:01.500Z' },
    ])
  })

  it('throws on a transition that its table lacks, and stays in its state', () => {
    const machine = createStateMachine<keyof typeof LIGHTS>(LIGHTS, 'red', () => new Date(0))
    for (const state of ['red', 'off'] as const)
      assert.throws(() => machine.enter(state), { message: `No transition from red to ${state}.` })
    assert.equal(machine.current, 'red')
    assert.equal(machine.history.length, 1)
  })
})

describe('statesBetween', () => {
  const ways: [from: string, to: string, way: string[]][] = [
    ['home', 'walk', ['walk']],
    ['home', 'rest', ['walk', 'rest']],
    ['home', 'done', ['ride', 'done']],
    ['walk', 'done', ['rest', 'done']],
    ['walk', 'ride', ['home', 'ride']],
    ['walk', 'walk', []],
    ['done', 'home', []],
    ['home', 'nowhere', []],
    ['nowhere', 'home', []],
    ['__proto__', 'home', []],
    ['constructor', 'home', []],
  ]
  for (const [from, to, way] of ways) {
    it(`finds ${way.join(', ') || 'nothing'} from ${from} to ${to}`, () => {
      assert.deepEqual(statesBetween(TRIP, from, to), way)
    })
  }
})
