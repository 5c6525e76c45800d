import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import { type DependentStep, findCycles, orderSteps } from '../../../src/core/plan/plan-order.ts'

/** Steps s0, s1, ... in any order, each depending only on steps with smaller numbers. */
const acyclicSteps: fc.Arbitrary<DependentStep[]> = fc
  .integer({ min: 0, max: 30 })
  .chain(count =>
    fc.tuple(
      ...Array.from({ length: count }, (_, i) =>
        fc.uniqueArray(fc.nat(Math.max(i - 1, 0)), { maxLength: Math.min(i, 5) }),
      ),
    ),
  )
  .map(lists => lists.map((list, i) => ({ id: `s${i}`, dependsOn: list.map(n => `s${n}`) })))
  .chain(steps => fc.shuffledSubarray(steps, { minLength: steps.length }))

function step(id: string, ...dependsOn: string[]): DependentStep {
  return { id, dependsOn }
}

function idsOf(steps: readonly DependentStep[]): string {
  return steps.map(({ id }) => id).join(' ')
}

const orders: { name: string; steps: DependentStep[]; expected: string }[] = [
  { name: 'no steps for an empty plan', steps: [], expected: '' },
  {
    name: 'steps without dependencies in the order of the plan',
    steps: [step('c'), step('a'), step('b')],
    expected: 'c a b',
  },
  {
    name: 'a dependency just before the step that needs it',
    steps: [step('x'), step('b', 'a'), step('y'), step('a')],
    expected: 'x a b y',
  },
  {
    name: 'dependencies in the order in which they are listed',
    steps: [step('d', 'b', 'a'), step('a'), step('b')],
    expected: 'b a d',
  },
  {
    name: 'each step of a diamond once',
    steps: [step('d', 'b', 'c'), step('b', 'a'), step('c', 'a'), step('a')],
    expected: 'a b c d',
  },
]

describe('orderSteps', () => {
  for (const { name, steps, expected } of orders) {
    it(`returns ${name}`, () => assert.equal(idsOf(orderSteps({ steps })), expected))
  }

  it('puts every dependency before the steps that need it, and loses no step', () => {
    fc.assert(
      fc.property(acyclicSteps, steps => {
        const order = orderSteps({ steps })
        const place = new Map(order.map(({ id }, index) => [id, index]))
        assert.deepEqual(new Set(order), new Set(steps))
        assert.equal(order.length, steps.length)
        for (const { id, dependsOn } of steps) {
          for (const dependency of dependsOn) assert.ok((place.get(dependency) ?? Infinity) < (place.get(id) ?? -1))
        }
      }),
    )
  })

  it('does not change an order that already fits', () => {
    fc.assert(
      fc.property(acyclicSteps, steps => {
        const order = orderSteps({ steps })
        assert.deepEqual(orderSteps({ steps: order }), order)
      }),
    )
  })

  it('orders a chain of 10,000 steps written backwards', () => {
    const chain = Array.from({ length: 10_000 }, (_, i) => (i === 0 ? step('s0') : step(`s${i}`, `s${i - 1}`)))
    assert.deepEqual(orderSteps({ steps: chain.toReversed() }), chain)
  })
})

const cycles: { name: string; steps: DependentStep[]; expected: string[] }[] = [
  { name: 'no cycle in a plan without one', steps: [step('a'), step('b', 'a')], expected: [] },
  { name: 'a cycle of two steps', steps: [step('a', 'b'), step('b', 'a')], expected: ['a b a'] },
  {
    name: 'a cycle of three steps, without the steps that lead to it',
    steps: [step('x', 'a'), step('a', 'b'), step('b', 'c'), step('c', 'a')],
    expected: ['a b c a'],
  },
  {
    name: 'two separate cycles',
    steps: [step('a', 'b'), step('b', 'a'), step('c', 'd'), step('d', 'c')],
    expected: ['a b a', 'c d c'],
  },
  {
    name: 'two cycles that share a step',
    steps: [step('a', 'b', 'c'), step('b', 'a'), step('c', 'a')],
    expected: ['a b a', 'a c a'],
  },
  {
    name: 'no cycle in a step that depends on itself or on an unknown step',
    steps: [step('a', 'a', 'zz')],
    expected: [],
  },
]

describe('findCycles', () => {
  for (const { name, steps, expected } of cycles) {
    it(`finds ${name}`, () =>
      assert.deepEqual(
        findCycles(steps).map(({ ids }) => ids.join(' ')),
        expected,
      ))
  }

  it('says which entry closes the cycle', () => {
    const [cycle] = findCycles([step('a', 'x', 'b'), step('b', 'x', 'a'), step('x')])
    assert.deepEqual([cycle?.step.id, cycle?.entry], ['b', 1])
  })

  it('finds no cycle where steps depend only on steps with smaller numbers', () => {
    fc.assert(fc.property(acyclicSteps, steps => assert.deepEqual(findCycles(steps), [])))
  })

  it('finds the one cycle in a ring of steps', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 50 }), count => {
        const ring = Array.from({ length: count }, (_, i) => step(`s${i}`, `s${(i + 1) % count}`))
        assert.deepEqual(
          findCycles(ring).map(({ ids }) => ids),
          [[...ring.map(({ id }) => id), 's0']],
        )
      }),
    )
  })

  it('does not list every cycle of a dense plan', () => {
    const names = Array.from({ length: 300 }, (_, i) => `s${i}`)
    assert.ok(findCycles(names.map(name => step(name, ...names))).length <= 20)
  })
})
