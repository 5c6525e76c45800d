import assert from 'node:assert/strict'
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { auditPath } from '../../../src/install/host/layout.ts'
import { appendAudit } from '../../../src/install/reports/audit.ts'
import { hostOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost, reportOf } from '../prepared-host.ts'

describe('appendAudit', () => {
  it('neither repeats a line nor continues one that was cut off', async t => {
    const layout = await prepareTemporaryHost(t)
    writeFileSync(auditPath(layout), '{"cut')
    for (const outcome of ['success', 'success', 'failed'] as const) {
      await appendAudit(hostOf(layout), reportOf({ outcome }))
    }
    const [cut, ...lines] = readFileSync(auditPath(layout), 'utf8').split('\n')
    assert.equal(cut, '{"cut')
    assert.deepEqual(
      lines.filter(line => line !== '').map(line => JSON.parse(line).outcome),
      ['success', 'failed'],
    )
  })

  it('does not write through a symlink', async t => {
    const layout = await prepareTemporaryHost(t)
    const elsewhere = join(layout.root, 'elsewhere')
    writeFileSync(elsewhere, 'mine')
    symlinkSync(elsewhere, auditPath(layout))
    await assert.rejects(appendAudit(hostOf(layout), reportOf()), { code: 'ELOOP' })
    assert.equal(readFileSync(elsewhere, 'utf8'), 'mine')
  })
})
