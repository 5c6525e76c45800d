import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import type { DeploymentEnd } from '../../../src/install/transaction/end.ts'
import { type JournalRecord, pendingChanges } from '../../../src/install/transaction/journal.ts'

const CHANGE: JournalRecord = { record: 'change', change: { type: 'move', from: 'plugins/x', to: 'aside/x' } }

function endThat(restored: boolean): JournalRecord {
  const end: DeploymentEnd = {
    outcome: restored ? 'rolled_back' : 'inconsistent',
    changed: !restored,
    completed_at: '2026-01-02T03:04:07.000Z',
    error: null,
    rollback: { restored, problems: [], verified: null, healthy: null },
  }
  return { record: 'end', end }
}

describe('the changes pending after an end', () => {
  it('are none when all was taken back, though there was no room to note each', () => {
    assert.deepEqual(pendingChanges([CHANGE, endThat(true)]), [])
  })

  it('are still there when they could not be taken back', () => {
    assert.deepEqual(pendingChanges([CHANGE, endThat(false)]), [CHANGE.change])
  })
})
