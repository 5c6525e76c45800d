import assert from 'node:assert/strict'
import { renameSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { applyChanges } from '../../../src/install/changes/change.ts'
import { buildEnd } from '../../../src/install/journal/facts.ts'
import type { JournalRecord } from '../../../src/install/journal/records.ts'
import { recoverDeadRun } from '../../../src/install/recovery/recover.ts'
import { factsOf, rowOf } from '../prepared-host.ts'
import {
  announced,
  assertReported,
  assertSettled,
  begun,
  makeScene,
  reportedStates,
  STAGING,
  UPDATE,
} from './recovery-scene.ts'

const COMMIT: JournalRecord = {
  record: 'commit',
  at: '2026-01-02T03:04:07.000Z',
  rows: [rowOf()],
  removed: [],
  discard: [],
}

/** The states of each flow after `pending`: up to the first change, and from there to success. */
const MARKETPLACE = {
  preparing: ['fetching', 'verifying_signature', 'extracting', 'loading_plan', 'resolving_sequence', 'installing'],
  completing: ['healthchecking', 'succeeded'],
}
const PROJECT = {
  preparing: [
    'authenticating',
    'requesting_artifact',
    'downloading',
    'verifying_signature',
    'obtaining_key',
    'decrypting',
    'extracting',
    'verifying_manifest',
    'validating_project',
    'resolving_sequence',
    'installing',
  ],
  completing: ['healthchecking', 'notifying', 'succeeded'],
}

describe('recover, at the end of a flow,', () => {
  for (const [contract, { preparing, completing }] of [
    ['marketplace', MARKETPLACE],
    ['project', PROJECT],
  ] as const) {
    const facts = factsOf({ contract })
    const whole = ['pending', ...preparing, ...completing]
    for (const state of whole.slice(0, -1)) {
      const known = whole.slice(0, whole.indexOf(state) + 1)
      const journal = `a ${contract} journal that stops at ${state}`
      it(`enters the missing states up to succeeded after ${journal}`, async t => {
        const scene = await makeScene(t)
        for (const change of UPDATE) await applyChanges(scene.layout.root, [change])
        scene.writeJournal([
          ...begun(scene.sender, known, facts),
          ...announced(UPDATE),
          { ...COMMIT, rows: [rowOf({ contract })] },
        ])
        await recoverDeadRun(scene.host)
        assert.deepEqual(reportedStates(scene), whole)
        assertReported(scene, { outcome: 'success', state: 'succeeded' })
      })

      it(`enters the missing states up to rolled_back after ${journal}`, async t => {
        const scene = await makeScene(t)
        for (const change of UPDATE) await applyChanges(scene.layout.root, [change])
        scene.writeJournal([...begun(scene.sender, known, facts), ...announced(UPDATE)])
        await recoverDeadRun(scene.host)
        const changing = ['pending', ...preparing]
        assert.deepEqual(reportedStates(scene), [...(known.length > changing.length ? known : changing), 'rolled_back'])
        assertReported(scene, { outcome: 'rolled_back', state: 'rolled_back' })
      })
    }

    for (const foreign of ['__proto__', 'constructor', 'elsewhere']) {
      it(`rolls back a ${contract} deployment in the unknown state ${foreign}`, async t => {
        const scene = await makeScene(t)
        for (const change of UPDATE) await applyChanges(scene.layout.root, [change])
        const plugins = scene.plugins()
        scene.writeJournal([...begun(scene.sender, ['pending', foreign], facts), ...announced(UPDATE)])
        await recoverDeadRun(scene.host)
        assert.notDeepEqual(scene.plugins(), plugins)
        assertSettled(scene)
        assertReported(scene, { outcome: 'rolled_back' })
      })
    }

    it(`fails a ${contract} deployment from every state in which nothing was changed`, async t => {
      for (const state of preparing) {
        const scene = await makeScene(t)
        const known = ['pending', ...preparing.slice(0, preparing.indexOf(state) + 1)]
        scene.writeJournal(begun(scene.sender, known, facts))
        await recoverDeadRun(scene.host)
        assert.deepEqual(reportedStates(scene), [...known, 'failed'])
      }
    })
  }

  it('enters the states at the time of the end', async t => {
    const scene = await makeScene(t)
    for (const change of UPDATE) await applyChanges(scene.layout.root, [change])
    const end = buildEnd(new Date('2026-01-02T03:04:08.000Z'), { outcome: 'success', changed: true })
    const records = begun(scene.sender, ['pending', 'fetching', 'installing'])
    scene.writeJournal([...records, ...announced(UPDATE), COMMIT, { record: 'end', end }])
    await recoverDeadRun(scene.host)
    assert.deepEqual(scene.reports()[0]?.states.slice(-2), [
      { state: 'healthchecking', at: end.completed_at },
      { state: 'succeeded', at: end.completed_at },
    ])
  })

  it('enters every state when the journal has lost all of them', async t => {
    const scene = await makeScene(t)
    for (const change of UPDATE) await applyChanges(scene.layout.root, [change])
    scene.writeJournal([...begun(scene.sender, []), ...announced(UPDATE), COMMIT])
    await recoverDeadRun(scene.host)
    assert.deepEqual(reportedStates(scene), [...MARKETPLACE.preparing, ...MARKETPLACE.completing])
  })

  for (const state of ['succeeded', 'failed', 'rolled_back'] as const) {
    it(`does not enter ${state} twice`, async t => {
      const scene = await makeScene(t)
      const known = ['pending', 'fetching', 'installing', state]
      const outcome = state === 'succeeded' ? 'success' : state
      const end = buildEnd(new Date(), { outcome })
      scene.writeJournal([
        ...begun(scene.sender, known),
        ...(state === 'succeeded' ? [COMMIT] : []),
        { record: 'end', end },
      ])
      await recoverDeadRun(scene.host)
      assert.deepEqual(reportedStates(scene), known)
    })
  }

  it('ends as rolled_back a flow that had failed because it could not roll back', async t => {
    const scene = await makeScene(t)
    for (const change of UPDATE) await applyChanges(scene.layout.root, [change])
    const elsewhere = join(scene.layout.root, 'elsewhere')
    renameSync(join(scene.layout.root, 'plugins/greeter/data'), elsewhere)
    const failed = buildEnd(new Date(), {
      outcome: 'inconsistent',
      changed: true,
      error: { code: 'step_failed', message: 'the cause', step: 'env' },
      rollback: { restored: false, problems: ['in the way'], verified: null, healthy: null },
    })
    const known = ['pending', 'fetching', 'installing', 'failed']
    scene.writeJournal([...begun(scene.sender, known), ...announced(UPDATE), { record: 'end', end: failed }])
    await assert.rejects(recoverDeadRun(scene.host), { code: 'inconsistent' })
    assert.deepEqual(reportedStates(scene), known)
    renameSync(elsewhere, join(scene.layout.root, STAGING, 'tree/data'))
    await recoverDeadRun(scene.host)
    assert.deepEqual(reportedStates(scene), [...known, 'rolled_back'])
    assert.match(scene.log.lines.join('\n'), /^notice The interrupted deployment of .* it was rolled back/m)
    const [report] = scene.reports()
    assert.deepEqual(
      [report?.outcome, report?.state, report?.changed, report?.error],
      ['rolled_back', 'rolled_back', false, failed.error],
    )
  })
})
