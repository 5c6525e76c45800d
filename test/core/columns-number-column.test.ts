import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { NumberColumn } from '../../src/core/columns.ts'

const NUMBERS = {
  int32: [0, 1, -1, 2 ** 31 - 1, -(2 ** 31)],
  float64: [0, -1, 2 ** 32, Number.MAX_SAFE_INTEGER, Number.NaN],
}

describe('a column of numbers', () => {
  for (const kind of ['int32', 'float64'] as const) {
    it(`returns the ${kind} numbers that were added or set`, () => {
      const column = new NumberColumn(kind)
      const expected = Array.from({ length: 10_000 }, (_, at) => NUMBERS[kind][at % 5] as number)
      for (const number of expected) column.add(number)
      expected[5000] = 7
      column.set(5000, 7)
      assert.equal(column.length, expected.length)
      assert.deepEqual(
        expected.map((_, at) => column.at(at)),
        expected,
      )
    })
  }
})
