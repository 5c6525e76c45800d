import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { buildEnd, listDrift } from '../../../src/install/journal/facts.ts'

const AT = new Date('2026-01-02T03:04:05.678Z')

describe('listDrift', () => {
  const added = (top: string, count: number): string[] => Array.from({ length: count }, (_, at) => `${top}/${at}`)
  const named = { shelf: 'plugins', id: 'greeter', version: '1.0.0' } as const
  const entry = { ...named, removed: [], changed: ['main.py'] }

  it('lists a directory with more than 20 added files by its name, so that it hides no other difference', () => {
    const paths = ['a.txt', ...added('.venv', 21), ...added('logs', 2)]
    assert.deepEqual(listDrift([{ ...entry, added: paths, omitted: 9 }]), {
      names: [
        'plugins/greeter/main.py (changed)',
        'plugins/greeter/a.txt (added)',
        'plugins/greeter/.venv (21 files added)',
        'plugins/greeter/logs/0 (added)',
        'plugins/greeter/logs/1 (added)',
      ],
      more: ' and 9 more',
      directories: ['plugins/greeter/.venv'],
    })
  })
})

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
