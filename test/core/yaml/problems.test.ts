import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { didYouMean, MAX_REPORTED_PROBLEMS, nearMiss, problemAt, SourceError } from '../../../src/core/yaml/problems.ts'

function messageOf(count: number): string {
  const problems = Array.from({ length: count }, (_, index) =>
    problemAt({ file: 'f.yaml', line: index + 1, column: 1 }, 'x'),
  )
  return new SourceError('invalid_plan', 'The plan', problems).message
}

describe('SourceError', () => {
  it('counts the problems and quotes the first, and says when there may be more than it counts', () => {
    const first = 'the first is at f.yaml, line 1, column 1: x.'
    assert.equal(messageOf(1), 'The plan is refused at f.yaml, line 1, column 1: x.')
    assert.equal(messageOf(2), `The plan has 2 problems; ${first}`)
    assert.equal(messageOf(MAX_REPORTED_PROBLEMS), `The plan has at least 100 problems; ${first}`)
  })
})

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
    assert.equal(didYouMean('a::error::x', ['a\n::error::x']), '; did you mean "a ::error::x"?')
    assert.ok(didYouMean('x'.repeat(10_000), ['x'.repeat(10_001)]).length < 120)
  })
})
