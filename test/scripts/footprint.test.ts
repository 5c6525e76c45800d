import assert from 'node:assert/strict'
import { join } from 'node:path'
import { before, describe, it } from 'node:test'
import { type Footprint, measureFootprint, readRecordedFootprint } from '../../bench/measure.ts'

const MAX_GROWTH = 1.25

describe('dist/', () => {
  let found: Footprint
  before(() => {
    found = measureFootprint(join(import.meta.dirname, '../..'))
  })

  for (const figure of ['bundleBytes', 'coldStartRatio'] as const) {
    it(`is at most a quarter above the recorded ${figure}`, () => {
      const most = readRecordedFootprint()[figure] * MAX_GROWTH
      const advice = 'find out what dist/ loads now; if you want that, run `npm run bench -- --record` and say why'
      assert.ok(found[figure] <= most, `${figure} is ${found[figure]}, more than ${most}: ${advice}`)
    })
  }
})
