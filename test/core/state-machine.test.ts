import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { createStateMachine } from '../../src/core/state-machine.ts'

const LIGHTS = { red: ['green'], green: ['red'], off: [] } as const

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

  it('throws on any other transition and stays in its state', () => {
    const machine = createStateMachine<keyof typeof LIGHTS>(LIGHTS, 'red', () => new Date(0))
    for (const state of ['red', 'off'] as const) assert.throws(() => machine.enter(state))
    assert.equal(machine.current, 'red')
    assert.equal(machine.history.length, 1)
  })
})
