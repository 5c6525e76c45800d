import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { durationSchema } from '../../../src/core/plan/step.ts'

const accepted: [unknown, number][] = [
  [1, 1],
  [30, 30],
  [600, 600],
  ['30s', 30],
  ['2m', 120],
  ['10m', 600],
  ['30', 30],
  [' 30s ', 30],
]
const refused: unknown[] = [
  0,
  -1,
  601,
  1.5,
  NaN,
  '30 s',
  '11m',
  '1h',
  '2M',
  '1m30s',
  '-1s',
  '',
  '99999999s',
  null,
  true,
  [],
]

describe('durationSchema', () => {
  for (const [written, seconds] of accepted) {
    it(`reads ${JSON.stringify(written)} as ${seconds} seconds`, () => {
      assert.equal(durationSchema(1, 600).parse(written), seconds)
    })
  }

  for (const written of refused) {
    it(`refuses ${String(JSON.stringify(written))}`, () => {
      assert.equal(durationSchema(1, 600).safeParse(written).success, false)
    })
  }
})
