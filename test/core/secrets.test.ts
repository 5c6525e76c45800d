import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import { createRedactor } from '../../src/core/secrets.ts'

describe('createRedactor', () => {
  const cases = {
    'a secret anywhere': [['hunter22'], 'a hunter22 b hunter22', 'a *** b ***'],
    'a secret inside another word': [['hunter22'], 'xhunter22x', 'x***x'],
    'the longer of two that overlap': [['abcd', 'abcdefgh'], 'abcdefgh', '***'],
    'each line of a secret of several': [['line-one\nline-two'], 'got line-two', 'got ***'],
    'a secret as JSON writes it': [['pass"word\\'], JSON.stringify('pass"word\\'), '"***"'],
    'a secret as a URL writes it': [['p&ss/word'], '?k=p%26ss%2Fword', '?k=***'],
    'what a pattern would take for more': [['a.c*$&'], 'abc a.c*$& $&', 'abc *** $&'],
  } as const
  for (const [name, [secrets, text, redacted]] of Object.entries(cases)) {
    it(`replaces ${name}`, () => assert.equal(createRedactor(secrets)(text), redacted))
  }

  it('leaves secrets under 4 characters, and does nothing without secrets', () => {
    assert.equal(createRedactor(['abc', undefined, ''])('abcabc'), 'abcabc')
  })

  it('leaves no secret in any text', () => {
    const secret = fc.string({ unit: fc.constantFrom('a', 'b', '"', '&', '\n', '*'), minLength: 4, maxLength: 8 })
    fc.assert(
      fc.property(fc.array(secret, { minLength: 1, maxLength: 3 }), fc.string(), (secrets, rest) => {
        const known = secrets.filter(item => !/^\*+$/.test(item))
        const redacted = createRedactor(known)(known.join(rest))
        for (const item of known) assert.ok(!redacted.replaceAll('***', '').includes(item))
      }),
    )
  })
})
