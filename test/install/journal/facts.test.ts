import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { buildEnd } from '../../../src/install/journal/facts.ts'

const AT = new Date('2026-01-02T03:04:05.678Z')

describe('buildEnd', () => {
  it('contains nulls and no change for unknown facts', () => {
    assert.deepEqual(buildEnd(AT, { outcome: 'success' }), {
      outcome: 'success',
      changed: false,
      completed_at: '2026-01-02T03:04:05.678Z',
      error: null,
      rollback: null,
    })
  })

  it('contains all known facts', () => {
    const known = {
      outcome: 'rolled_back',
      changed: true,
      completed_at: '2026-01-02T00:00:00.000Z',
      error: { code: 'step_failed', message: 'the cause', step: 'env' },
      rollback: { restored: true, problems: [], verified: true, healthy: null },
    } as const
    assert.deepEqual(buildEnd(AT, { ...known, rollback: { ...known.rollback, problems: [] } }), known)
  })
})
