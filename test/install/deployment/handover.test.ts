import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { describe, it } from 'node:test'
import { checkRestored, writeHandover } from '../../../src/install/deployment/handover.ts'
import { recordInstalled } from '../../../src/install/host/installed/host-record.ts'
import { writeLocalReport } from '../../../src/install/reports/local-report.ts'
import type { RestoredCheck } from '../../../src/install/services/healthchecks.ts'
import { hostOf } from '../prepared-deployment.ts'
import { factsOf, prepareTemporaryHost, reportOf, rowOf } from '../prepared-host.ts'

const ROLLBACK = { restored: true, problems: [], verified: true, healthy: null }

function checkBy(command: string, id = 'greeter'): RestoredCheck {
  const probe = { type: 'command', command: ['/bin/sh', '-c', command] } as const
  const check = { probe, intervalSeconds: 1, stableForSeconds: 0 }
  return { id, service: null, check, timeout_seconds: 1, retries: 0, previous_version: '1.0.0' }
}

describe('the health checks that a cancelled run hands to its post step', () => {
  it('fit into an environment variable, and leave the health unknown for checks that do not fit', async t => {
    const layout = await prepareTemporaryHost(t)
    const path = await writeLocalReport(hostOf(layout), reportOf({ outcome: 'rolled_back', rollback: ROLLBACK }))
    const checks = Array.from({ length: 2000 }, (_, index) => checkBy('true', `part-${index}`))
    const text = writeHandover(layout, factsOf(), checks)
    assert.ok(Buffer.byteLength(text) < 128 * 1024)
    const { checks: kept, left_out: left } = JSON.parse(text)
    assert.equal(kept.length + left, 2000)
    const few = JSON.stringify({ ...JSON.parse(text), checks: kept.slice(0, 1) })
    assert.equal(await checkRestored(hostOf(layout), few), undefined)
    assert.equal(JSON.parse(readFileSync(path, 'utf8')).rollback.healthy, null)
  })

  it('fit into an environment variable even if each character takes 3 bytes', async t => {
    const layout = await prepareTemporaryHost(t)
    const checks = Array.from({ length: 14 }, () => checkBy(`: ${'界'.repeat(4000)}`))
    const text = writeHandover(layout, factsOf(), checks)
    assert.ok(Buffer.byteLength(text) < 128 * 1024, `${Buffer.byteLength(text)} bytes`)
  })

  it('still name the unhealthy service when the local report is gone', async t => {
    const layout = await prepareTemporaryHost(t)
    const text = writeHandover(layout, factsOf(), [checkBy('echo "no database"; exit 3')])
    const found = await checkRestored(hostOf(layout), text)
    assert.match(found?.sentence ?? '', /no database/)
    assert.equal(found?.found, undefined)
  })

  it('are not run if another version has been installed by then', async t => {
    const layout = await prepareTemporaryHost(t)
    const text = writeHandover(layout, factsOf(), [checkBy('exit 3')])
    await recordInstalled(layout, { rows: [rowOf()], removed: [] })
    assert.equal(await checkRestored(hostOf(layout), text), undefined)
  })

  for (const [what, change] of Object.entries({
    'not JSON': () => '{',
    'of another shape': (text: string) => text.replace('"command"', '"eval"'),
    'for a malformed id': (text: string) => text.replace(/"deployment_id":"[^"]*"/, '"deployment_id":"../../x"'),
  })) {
    it(`are refused when they are ${what}`, async t => {
      const layout = await prepareTemporaryHost(t)
      const text = change(writeHandover(layout, factsOf(), [checkBy('exit 3')]))
      await assert.rejects(checkRestored(hostOf(layout), text))
    })
  }
})
