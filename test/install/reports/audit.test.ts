import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { describe, it } from 'node:test'
import { auditPath } from '../../../src/install/host/layout.ts'
import { appendAudit } from '../../../src/install/reports/audit.ts'
import { NO_REDACTION, prepareTemporaryHost, reportOf } from '../prepared-host.ts'

describe('appendAudit', () => {
  it('does not repeat a line, and does not join one that was cut off', async t => {
    const layout = await prepareTemporaryHost(t)
    writeFileSync(auditPath(layout), '{"cut')
    for (const outcome of ['success', 'success', 'failed'] as const) {
      await appendAudit(layout, reportOf({ outcome }), NO_REDACTION)
    }
    const [cut, ...lines] = readFileSync(auditPath(layout), 'utf8').split('\n')
    assert.equal(cut, '{"cut')
    assert.deepEqual(
      lines.filter(line => line !== '').map(line => JSON.parse(line).outcome),
      ['success', 'failed'],
    )
  })
})
