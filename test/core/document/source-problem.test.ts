import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MAX_REPORTED_PROBLEMS, problemAt, SourceError } from '../../../src/core/document/source-problem.ts'

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
