import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { labelSchema } from '../../hub/names.ts'
import { visibleText } from '../../hub/page/foreign-text.ts'

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
