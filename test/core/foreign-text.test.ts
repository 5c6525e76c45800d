import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import { cleanForeignText } from '../../src/core/foreign-text.ts'

const CASES = {
  'a line break becomes a space': ['a\nb', 'a b'],
  'a carriage return becomes a space': ['a\r\nb\rc', 'a b c'],
  'colors are removed': ['\u001b[31mred\u001b[0m', 'red'],
  'a terminal link is removed': ['\u001b]8;;http://x.example\u0007text\u001b]8;;\u0007', 'text'],
  'a command is broken': ['::error::x', ':·:error:·:x'],
  'three colons no longer contain a pair': [':::stop', ':·:·:stop'],
  'an old command is broken': ['a ##[error]x', 'a #·#[error]x'],
  'a command hidden by a color is broken': [':\u001b[0m:error', ':·:error'],
  'a command hidden by a zero-width space is broken': [':\u200b:error', ': :error'],
  'a direction mark becomes a space': ['a\u202eb', 'a b'],
  'line separators become spaces': ['a\u2028b\u2029c', 'a b c'],
  'NUL and DEL become spaces': ['a\0b\u007fc', 'a b c'],
  'other languages stay': ['Zażółć 日本語 😀', 'Zażółć 日本語 😀'],
} as const

describe('cleanForeignText', () => {
  for (const [name, [text, cleaned]] of Object.entries(CASES)) {
    it(name, () => assert.equal(cleanForeignText(text), cleaned))
  }

  it('cuts between characters, and marks the cut', () => {
    assert.equal(cleanForeignText('😀😀😀', 2), '😀😀… (cut)')
    assert.equal(cleanForeignText('😀😀', 2), '😀😀')
    assert.equal(cleanForeignText(`${'\u001b[0m'.repeat(10)}abc`, 2), '… (cut)')
  })

  it('leaves nothing that a runner or a terminal would act on, in any text', () => {
    const piece = fc.oneof(
      fc.constantFrom(
        ':',
        '::',
        '##[',
        '#',
        '[',
        '\u001b',
        '\u001b[0m',
        '\u001b]',
        '\r',
        '\n',
        '\u200b',
        '\u202e',
        '\u0007',
      ),
      fc.string({ unit: 'binary', maxLength: 3 }),
    )
    fc.assert(
      fc.property(
        fc.array(piece).map(pieces => pieces.join('')),
        text => {
          assert.doesNotMatch(cleanForeignText(text), /::|##\[|[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u)
        },
      ),
      { numRuns: 2000 },
    )
  })
})
