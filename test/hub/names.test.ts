import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { labelSchema, newestFirst } from '../../hub/names.ts'
import { visibleText } from '../../hub/page/text.ts'

describe('a name', () => {
  for (const [name, text] of [
    ['half a character', 'app\ud800'],
    ['a NUL', 'app\0'],
    ['two lines', 'app\n1'],
  ] as const)
    it(`is refused with ${name}`, () => assert.equal(labelSchema.safeParse(text).success, false))

  for (const [text, shown] of [
    ['app 1', 'app 1'],
    ['app\u00a01', 'app‹U+00A0›1'],
    ['app\u30001', 'app‹U+3000›1'],
    ['app  1', 'app‹U+0020› 1'],
    [' app', '‹U+0020›app'],
    ['app ', 'app‹U+0020›'],
  ] as const)
    it(`is shown as ${JSON.stringify(shown)}, so that it looks like no other name`, () => {
      assert.equal(visibleText(text), shown)
    })
})

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
