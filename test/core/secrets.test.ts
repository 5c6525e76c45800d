import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import { cleanForeignText } from '../../src/core/foreign-text.ts'
import { cell } from '../../src/core/markdown.ts'
import { createRedactor } from '../../src/core/secrets.ts'

describe('createRedactor', () => {
  const cases = {
    'a secret anywhere': [['hunter22'], 'a hunter22 b hunter22', 'a *** b ***'],
    'a secret inside another word': [['hunter22'], 'xhunter22x', 'x***x'],
    'the longer of two secrets that overlap': [['abcd', 'abcdefgh'], 'abcdefgh', '***'],
    'each line of a secret with several lines': [['line-one\nline-two'], 'got line-two', 'got ***'],
    'a secret as JSON writes it': [['pass"word\\'], JSON.stringify('pass"word\\'), '"***"'],
    'a secret as a URL writes it': [['p&ss/word'], '?k=p%26ss%2Fword', '?k=***'],
    'a secret as a summary shows it': [['hub_p*ss_word'], cell('x hub_p*ss_word'), 'x ***'],
    'a secret that was cleaned as foreign text': [['a::b\u0007cd'], cleanForeignText('x a::b\u0007cd'), 'x ***'],
    'the beginning of a secret that was cut off': [['hunter22'], 'got hunter… (cut)', 'got ***… (cut)'],
    'the beginning of a secret in a text that was cut twice': [['hunter22'], 'got hunt…… (cut)', 'got ***…… (cut)'],
    'the longest beginning of several secrets': [['hunt', 'hunter22'], 'hunter… (cut)', '***… (cut)'],
    'a secret that contains the cut mark': [['hunter…22'], 'hunter…22', '***'],
    'a secret with characters that have a special meaning in patterns': [['a.c*$&'], 'abc a.c*$& $&', 'abc *** $&'],
  } as const
  for (const [name, [secrets, text, redacted]] of Object.entries(cases)) {
    it(`replaces ${name}`, () => assert.equal(createRedactor(secrets)(text), redacted))
  }

  it('does not replace secrets of fewer than 4 characters, and changes nothing without secrets', () => {
    assert.equal(createRedactor(['abc', undefined, ''])('abcabc'), 'abcabc')
  })

  it('leaves a text that was not cut, or was not cut within a secret', () => {
    const redact = createRedactor(['hunter22'])
    for (const text of ['the hunter', 'the hun… (cut)', 'hunter s… (cut)']) assert.equal(redact(text), text)
  })

  it('leaves fewer than 4 characters of a secret wherever a text is cut', () => {
    const secret = 'correct-horse::battery "staple"'
    for (let length = 1; length <= secret.length; length++) {
      const cut = cleanForeignText(`got: ${secret} and more`, 'got: '.length + length)
      const redacted = createRedactor([secret])(JSON.stringify({ error: cut }))
      assert.ok(length < 4 || !redacted.includes('corr'), redacted)
    }
  })

  it('leaves no secret in any text', () => {
    const secret = fc.string({
      unit: fc.constantFrom('a', 'b', '"', '&', '\n', '*', ':', '…'),
      minLength: 4,
      maxLength: 8,
    })
    fc.assert(
      fc.property(fc.array(secret, { minLength: 1, maxLength: 3 }), fc.string(), (secrets, rest) => {
        const known = secrets.filter(item => !/^\*+$/.test(item))
        const redacted = createRedactor(known)(known.join(rest))
        for (const item of known) assert.ok(!redacted.replaceAll('***', '').includes(item))
      }),
    )
  })
})
