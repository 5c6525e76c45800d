import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { didYouMean, nearMiss } from '../../../src/core/document/near-miss.ts'

const WORDS = ['prepare', 'restart', 'depends_on', 'healthcheck']

const cases: { name: string; word: string; expected: string | undefined }[] = [
  { name: 'swapped letters', word: 'restrat', expected: 'restart' },
  { name: 'a missing letter', word: 'prepre', expected: 'prepare' },
  { name: 'an added letter', word: 'restartt', expected: 'restart' },
  { name: 'a changed letter', word: 'rastart', expected: 'restart' },
  { name: 'other capitals', word: 'dependsOn', expected: 'depends_on' },
  { name: 'another separator', word: 'health-check', expected: 'healthcheck' },
  { name: 'two different letters', word: 'xxstart', expected: undefined },
  { name: 'another word', word: 'run', expected: undefined },
  { name: 'an empty word', word: '', expected: undefined },
]

describe('nearMiss', () => {
  for (const { name, word, expected } of cases) {
    it(`${expected === undefined ? 'finds nothing for' : 'finds the word despite'} ${name}`, () => {
      assert.equal(nearMiss(word, WORDS), expected)
    })
  }

  it('suggests the word that it finds, if any', () => {
    assert.equal(didYouMean('restrat', WORDS), '; did you mean "restart"?')
    assert.equal(didYouMean('run', WORDS), '')
  })

  it('cleans the word that it finds, which a publisher may have written', () => {
    assert.equal(didYouMean('a::error::x', ['a\n::error::x']), '; did you mean "a :·:error:·:x"?')
    assert.ok(didYouMean('x'.repeat(10_000), ['x'.repeat(10_001)]).length < 120)
  })
})
