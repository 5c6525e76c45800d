import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import {
  asSentence,
  bytesInWords,
  cell,
  cleanForeignText,
  cleanLogLine,
  countInWords,
  createRedactor,
  durationInWords,
  fitList,
  listAll,
  listFirst,
  shortDigest,
} from '../../src/core/text.ts'

const CASES = {
  'a line break becomes a space': ['a\nb', 'a b'],
  'a carriage return becomes a space': ['a\r\nb\rc', 'a b c'],
  'colors are removed': ['\u001b[31mred\u001b[0m', 'red'],
  'a terminal link is removed': ['\u001b]8;;http://x.example\u0007text\u001b]8;;\u0007', 'text'],
  'an address stays': ['connect ECONNREFUSED [::1]:80', 'connect ECONNREFUSED [::1]:80'],
  'a direction mark becomes a space': ['a\u202eb', 'a b'],
  'line separators become spaces': ['a\u2028b\u2029c', 'a b c'],
  'NUL and DEL become spaces': ['a\0b\u007fc', 'a b c'],
  'other languages stay': ['Zażółć 日本語 😀', 'Zażółć 日本語 😀'],
} as const

const LINES = {
  'a command is broken': ['::error::x', ':·:error::x'],
  'three colons no longer start with a pair': [':::stop', ':·::stop'],
  'an old command is broken anywhere': ['a ##[error]x ##[group]', 'a #·#[error]x #·#[group]'],
  'a command after blanks is broken': [' \t\u00a0::error::x', ':·:error::x'],
  'a command hidden by a color is broken': [':\u001b[0m:error', ':·:error'],
  'a zero-width space between the colons becomes a space': [':\u200b:error', ': :error'],
  'a command behind characters that the runner may ignore is broken': ['\u034f:\ufe00:error', '\u034f:·\ufe00:error'],
  'an old command with such characters is broken': ['a #\u034f#\ufe00[error]', 'a #·\u034f#\ufe00[error]'],
  'an address stays': ['http://[::1]:80 and a::b', 'http://[::1]:80 and a::b'],
} as const

describe('cleanLogLine', () => {
  for (const [name, [text, cleaned]] of Object.entries(LINES)) {
    it(name, () => assert.equal(cleanLogLine(text, 500), cleaned))
  }
})

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
          assert.doesNotMatch(cleanForeignText(text), /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u)
          assert.doesNotMatch(cleanLogLine(text, 500), /^\s*::|##\[|[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u)
        },
      ),
      { numRuns: 2000 },
    )
  })
})

describe('asSentence', () => {
  const cases: Record<string, string> = {
    'names no file': 'names no file.',
    'the hub answered 403 (no)': 'the hub answered 403 (no).',
    'It is done.': 'It is done.',
    'Is it done?': 'Is it done?',
    'It says "done."': 'It says "done."',
    '': '.',
  }
  for (const [text, sentence] of Object.entries(cases))
    it(`returns "${sentence}" for "${text}"`, () => assert.equal(asSentence(text), sentence))
})

describe('quantities in words', () => {
  const bytes = { 0: '0 bytes', 1: '1 byte', 999: '999 bytes', 1000: '1 kB', 8949000: '8.9 MB', 9960000: '10 MB' }
  for (const [count, words] of Object.entries({ ...bytes, 999499: '999 kB', 999600: '1 MB', 2147483648: '2.1 GB' }))
    it(`writes ${count} bytes as ${words}`, () => assert.equal(bytesInWords(Number(count)), words))

  const durations = { 0: '0 ms', 15: '15 ms', 99.6: '0.1 s', 3400: '3.4 s', 9960: '10 s', 59499: '59 s' }
  for (const [ms, words] of Object.entries({ ...durations, 59500: '1 min', 125000: '2 min 5 s', 7.2e6: '120 min' }))
    it(`writes ${ms} ms as ${words}`, () => assert.equal(durationInWords(Number(ms)), words))

  it('separates thousands, and uses the singular for one', () => {
    assert.deepEqual([countInWords(1, 'file'), countInWords(3012, 'file')], ['1 file', '3,012 files'])
    assert.deepEqual([countInWords(0, 'step'), countInWords(1_234_567)], ['0 steps', '1,234,567'])
  })

  it('shows both ends of a digest', () => {
    assert.equal(shortDigest(`e5193da1${'0'.repeat(52)}ff1d`), 'e5193da1…ff1d')
  })
})

describe('listAll', () => {
  it('puts "and" before the last item', () => {
    assert.deepEqual([[], ['a'], ['a', 'b'], ['a', 'b', 'c']].map(listAll), ['', 'a', 'a and b', 'a, b and c'])
  })
})

describe('listFirst', () => {
  it('says how many more there are, if any', () => {
    const names = ['a', 'b', 'c']
    assert.deepEqual([listFirst([], 2), listFirst(names, 3), listFirst(names, 2)], ['', 'a, b, c', 'a, b and 1 more'])
    assert.equal(listFirst(names, 1, ' → '), 'a and 2 more')
    assert.equal(listFirst(names, 3, ' → '), 'a → b → c')
  })
})

describe('fitList', () => {
  it('takes the first items that fit, up to the last character', () => {
    assert.deepEqual(fitList([1, 2, 'ab'], '[1,2,"ab"]'.length), { json: '[1,2,"ab"]', omitted: 0 })
    assert.deepEqual(fitList([1, 2, 'ab'], '[1,2,"ab"]'.length - 1), { json: '[1,2]', omitted: 1 })
    assert.deepEqual(fitList([1, 2], '[1,2]'.length - 1), { json: '[1]', omitted: 1 })
    assert.deepEqual(fitList(['abc'], 2), { json: '[]', omitted: 1 })
  })
})

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
