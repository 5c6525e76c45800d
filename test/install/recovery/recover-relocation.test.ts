import assert from 'node:assert/strict'
import { chmodSync, existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { applyChanges, type PlannedChange } from '../../../src/install/changes/change.ts'
import { UntouchableHostError } from '../../../src/install/host/ownership.ts'
import { recordInstalled } from '../../../src/install/host/record.ts'
import { recover } from '../../../src/install/recovery/recover.ts'
import { rowOf } from '../prepared-host.ts'
import { announced, begun, makeScene, SNAPSHOT, STAGING } from './recovery-scene.ts'

/** The changes of an update that moves a plugin to another directory, in the order in which the steps make them. */
const RELOCATION: readonly PlannedChange[] = [
  { type: 'make_directory', path: 'app' },
  { type: 'make_directory', path: 'app/of' },
  { type: 'move', from: 'plugins/greeter', to: SNAPSHOT },
  { type: 'move', from: `${SNAPSHOT}/data`, to: `${STAGING}/tree/data` },
  { type: 'move', from: `${STAGING}/tree`, to: 'app/of/greeter' },
]

describe('recover, after an update that moves a plugin to another directory', () => {
  for (let made = 0; made <= RELOCATION.length; made++) {
    it(`restores only the old directory after ${made} changes`, async t => {
      const scene = await makeScene(t)
      const before = scene.plugins()
      await recordInstalled(scene.layout, { rows: [rowOf()], removed: [] })
      for (const change of RELOCATION.slice(0, made)) await applyChanges(scene.layout.root, [change])
      scene.writeJournal([...begun(scene.sender), ...announced(RELOCATION.slice(0, Math.min(made + 1, 5)))])
      const closed = await recover(scene.host)
      assert.equal(closed?.report.outcome, made < 3 ? 'failed' : 'rolled_back')
      assert.deepEqual(scene.plugins(), before)
      assert.ok(!existsSync(join(scene.layout.root, 'app')))
    })
  }

  it('touches nothing if another user could have written to the new directory', async t => {
    const scene = await makeScene(t)
    for (const change of RELOCATION) await applyChanges(scene.layout.root, [change])
    scene.writeJournal([...begun(scene.sender), ...announced(RELOCATION)])
    const journal = scene.journalText()
    mkdirSync(join(scene.layout.root, 'app/of'), { recursive: true })
    chmodSync(join(scene.layout.root, 'app/of'), 0o777)
    await assert.rejects(recover(scene.host), UntouchableHostError)
    assert.deepEqual([scene.journalText(), existsSync(join(scene.layout.root, 'app/of/greeter'))], [journal, true])
  })
})
