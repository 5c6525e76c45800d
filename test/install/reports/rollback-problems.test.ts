import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { rollbackProblems } from '../../../src/install/reports/rollback-problems.ts'

describe('rollbackProblems', () => {
  const rows = [
    ['exit code 1', 'step_failed', ['The same happened again.', 'it answers 500.']],
    ['s1: exit code 1', 'step_failed', ['The same happened again.', 'it answers 500.']],
    ['exit code 1', 'unhealthy', ['exit code 1.', 'it answers 500.']],
    ['no time was left.', 'cancelled', ['exit code 1.', 'it answers 500.']],
  ] as const
  for (const [message, code, sentences] of rows)
    it(`returns sentences after the cause ${code}: ${message}`, () => {
      const report = {
        rollback: { restored: true, problems: ['exit code 1', 'it answers 500'], verified: true, healthy: null },
        error: { code, message, step: 's1' },
      }
      assert.deepEqual(rollbackProblems(report), sentences)
    })

  it('returns no sentence if there was no rollback', () => {
    assert.deepEqual(rollbackProblems({ rollback: null, error: null }), [])
  })
})
