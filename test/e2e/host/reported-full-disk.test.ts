import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { assertNothingStrays, commandsIn } from '../harness/evidence.ts'
import { mountMemory, whyNoMounting } from '../harness/mounts.ts'
import { assertSucceeds, type Fleet, openFleet } from '../harness/prepared-host.ts'
import { standIn } from '../harness/processes.ts'

describe('a run after one that was rolled back and reported on a full disk', () => {
  let fleet: Fleet
  before(async () => {
    fleet = await openFleet()
  })
  after(() => fleet.close())

  it('is never inconsistent, whether the disk is full or not, and repeats neither the report nor the audit line', {
    skip: whyNoMounting(),
  }, async t => {
    const host = fleet.newHost('reported-full', join(mountMemory(t, 'size=4m'), 'host'))
    const filler = join(host.root, '..', 'filler')
    const path = standIn(t, 'sync', `cat /dev/zero > ${filler} 2>/dev/null; exit 0`)
    const first = await host.deploy({}, { env: { PATH: path } })
    assert.equal(first.outputs['error-code'], 'disk_full', first.log)
    const still = await host.deploy()
    assert.deepEqual([still.outputs['outcome'], still.outputs['running-version']], ['failed', '1.0.0'], still.log)
    assert.doesNotMatch(still.log, /inconsistent/)
    const warnings = commandsIn(still.log, 'warning')
    assert.deepEqual(warnings, [...new Set(warnings)])
    rmSync(filler)
    assertSucceeds(await host.deploy())
    assert.deepEqual(host.reported().at(-1), 'success')
    const lines = readFileSync(join(host.root, '.hub-deploy/audit.jsonl'), 'utf8').trimEnd().split('\n')
    const ids = lines.map(line => JSON.parse(line).deployment_id)
    assert.equal(ids.length, new Set(ids).size)
    assertNothingStrays(host.root)
  })
})
