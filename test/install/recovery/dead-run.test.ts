import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { symlinkSync, writeFileSync } from 'node:fs'
import { describe, it, type TestContext } from 'node:test'
import { applyChanges } from '../../../src/install/changes/change.ts'
import { buildEnd } from '../../../src/install/journal/facts.ts'
import { requireAtRest } from '../../../src/install/recovery/dead-run.ts'
import { recoverDeadRun } from '../../../src/install/recovery/recover.ts'
import { holdLock } from '../../../src/install/recovery/recover-host.ts'
import { announced, begun, makeScene, type Scene, type SceneRecord, UPDATE } from './recovery-scene.ts'

const UNRESTORED: SceneRecord = {
  record: 'end',
  end: buildEnd(new Date(), {
    outcome: 'inconsistent',
    rollback: { restored: false, problems: ['A move failed.'], verified: null, healthy: null },
  }),
}

/** A host on which a run died after all changes of an update. `more` follows these changes in the journal. */
async function makeInterrupted(t: TestContext, more: readonly SceneRecord[] = []): Promise<Scene> {
  const scene = await makeScene(t)
  for (const change of UPDATE) await applyChanges(scene.layout.root, [change])
  scene.writeJournal([...begun(scene.sender), ...announced(UPDATE), ...more])
  return scene
}

function assertRefused({ host }: Scene, code: string, message: RegExp): Promise<void> {
  return assert.rejects(requireAtRest(host, new AbortController().signal), { code, message })
}

describe('a host', () => {
  for (const [what, isLive] of [
    ['a live run', true],
    ['a dead run', false],
  ] as const)
    it(`is at rest while ${what} has announced no change`, async t => {
      const scene = await makeScene(t)
      scene.writeJournal(begun(scene.sender))
      if (isLive) {
        const lock = await holdLock(scene.host, 0)
        t.after(() => lock.release())
      }
      await requireAtRest(scene.host, new AbortController().signal)
    })

  it('is at rest without a journal, even after a recovery', async t => {
    const scene = await makeScene(t)
    const { signal } = new AbortController()
    await requireAtRest(scene.host, signal)
    scene.writeJournal(begun(scene.sender))
    await recoverDeadRun(scene.host)
    await requireAtRest(scene.host, signal)
  })

  it('is not at rest while it waits for a recovery', async t => {
    await assertRefused(await makeInterrupted(t), 'locked', /in progress or was interrupted/)
  })

  it('is not at rest while a live run has its lock, whatever its journal contains', async t => {
    const scene = await makeInterrupted(t, [UNRESTORED])
    const lock = await holdLock(scene.host, 0)
    t.after(() => lock.release())
    await assertRefused(scene, 'locked', /in progress or was interrupted/)
  })

  it('is inconsistent after a failed recovery, until the changes are undone', async t => {
    const scene = await makeInterrupted(t, [UNRESTORED])
    await assertRefused(scene, 'inconsistent', /could not be rolled back, so nothing new is deployed: A move failed\./)
    const undone = await makeScene(t)
    undone.writeJournal([...begun(undone.sender), ...announced(UPDATE), UNRESTORED])
    await assertRefused(undone, 'locked', /in progress or was interrupted/)
  })

  it('is inconsistent when its recovery has been given up', async t => {
    const attempts = Array.from({ length: 5 }, () => ({
      record: 'recovery' as const,
      at: new Date().toISOString(),
      by: randomUUID(),
    }))
    await assertRefused(
      await makeInterrupted(t, attempts),
      'inconsistent',
      /in 5 attempts, so no further attempt is made/,
    )
  })

  it('is inconsistent when its journal is damaged', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.layout.journal, '')
    await assertRefused(scene, 'inconsistent', /is damaged/)
  })

  it('is inconsistent when its journal cannot be read, although that journal is not called damaged', async t => {
    const scene = await makeScene(t)
    symlinkSync('elsewhere', scene.layout.journal)
    await assertRefused(scene, 'inconsistent', /cannot be read, so nothing was changed\. Failed while reading/)
  })
})
