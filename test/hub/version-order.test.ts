import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { newestFirst } from '../../hub/version-order.ts'

describe('newestFirst', () => {
  for (const [name, published, expected] of [
    ['orders by number, not by letter', ['1.9.0', '1.10.0'], ['1.10.0', '1.9.0']],
    ['ignores the publication time', ['2.0.0', '1.0.0'], ['2.0.0', '1.0.0']],
    ['puts releases before pre-releases', ['2.0.0-rc.1', '1.0.0', '2.0.0-rc.2'], ['1.0.0', '2.0.0-rc.2', '2.0.0-rc.1']],
    ['reads a leading v', ['v1.2.0', '1.10.0', 'v1.9.0'], ['1.10.0', 'v1.9.0', 'v1.2.0']],
    [
      'puts names that are not semantic versions last, newest first',
      ['nightly-1', '1.0.0', 'nightly-2'],
      ['1.0.0', 'nightly-2', 'nightly-1'],
    ],
    ['orders builds of a version', ['1.0.0+1', '1.0.0+2'], ['1.0.0+2', '1.0.0+1']],
  ] as const) {
    it(name, () => {
      const versions = published.map((version, index) => ({ version, published_at: `2026-01-0${index + 1}` }))
      assert.deepEqual(
        newestFirst(versions).map(({ version }) => version),
        expected,
      )
    })
  }
})
