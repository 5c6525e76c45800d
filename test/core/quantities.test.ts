import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import {
  bytesInWords,
  countInWords,
  durationInWords,
  listAll,
  listFirst,
  shortDigest,
} from '../../src/core/quantities.ts'

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
