import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { byExtent } from '../../extent.ts'
import { assertNothingStrays } from '../harness/evidence.ts'
import { assertSucceeds, type Fleet, openFleet } from '../harness/prepared-host.ts'
import { tamperWithRecord, whyNoStrace } from '../harness/strace.ts'

/** The test kills a run at one in this many successive journal records. */
const STEP = byExtent({ sample: 6, ci: 2 })
const INSTALLED = { version: '1.0.0' }

describe('a run that changes nothing and is killed as it writes a journal record', () => {
  let fleet: Fleet
  before(async () => {
    fleet = await openFleet()
  })
  after(() => fleet.close())

  it('leaves nothing to undo, whichever record it is', { skip: whyNoStrace() }, async () => {
    const host = fleet.newHost('unchanged')
    // This run creates the settings.
    assertSucceeds(await host.deploy(INSTALLED))
    const tree = host.tree()
    const outcomes = new Set<string | undefined>()
    for (let nth = 1; ; nth += STEP) {
      const killed = await host.deploy(INSTALLED, tamperWithRecord(host.root, nth, 'signal=KILL'))
      if (killed.signal !== 'SIGKILL') {
        assertSucceeds(killed)
        break
      }
      const announced = host.journal().filter(({ record }) => record === 'change' || record === 'service')
      assert.deepEqual(announced, [], `the run was killed at record ${nth}`)
      assert.equal((await host.post(INSTALLED)).exitCode, 0)
      const report = host.localReports().at(-1)
      assert.deepEqual([report?.changed, report?.rollback], [false, null], `the run was killed at record ${nth}`)
      assert.deepEqual(host.tree(), tree)
      outcomes.add(report?.outcome)
    }
    // A run that is killed after its commit counts as a success, so not all of these runs have failed.
    assert.ok(outcomes.has('failed'))
    assertNothingStrays(host.root)
  })
})
