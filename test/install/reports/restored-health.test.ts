import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { restoredUnhealthy } from '../../../src/install/reports/restored-health.ts'
import { reportOf } from '../prepared-host.ts'

const ROLLBACK = { restored: true, problems: ['it answers 500'], verified: true, healthy: false }

describe('restoredUnhealthy', () => {
  const rows = [
    ['the previous version', {}, / 1\.0\.0, which is installed again, is not healthy on host-1: .* it answers 500\.$/],
    [
      'files that this action had not installed',
      { previous_version: null, unrecorded: true },
      / the previous version, which is installed again, is not healthy on host-1: .* it answers 500\.$/,
    ],
    [
      'nothing',
      { previous_version: null },
      /, but a service on host-1 is not as it was before: repair that service\. it answers 500\.$/,
    ],
  ] as const
  for (const [replaced, facts, sentence] of rows)
    it(`describes the end of a rollback whose deployment replaced ${replaced}`, () => {
      assert.match(restoredUnhealthy(reportOf({ ...facts, rollback: ROLLBACK })) ?? '', sentence)
    })

  it('returns undefined if the restored version is healthy or was not checked, and without a rollback', () => {
    for (const healthy of [true, null])
      assert.equal(restoredUnhealthy(reportOf({ rollback: { ...ROLLBACK, healthy } })), undefined)
    assert.equal(restoredUnhealthy(reportOf()), undefined)
  })
})
