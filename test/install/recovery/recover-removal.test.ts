import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { applyChanges } from '../../../src/install/changes/change.ts'
import { installPath } from '../../../src/install/host/layout.ts'
import { readHostRecord, recordInstalled } from '../../../src/install/host/record.ts'
import { buildEnd } from '../../../src/install/journal/facts.ts'
import type { JournalRecord } from '../../../src/install/journal/records.ts'
import { recoverDeadRun } from '../../../src/install/recovery/recover.ts'
import { driftNotePath } from '../../../src/install/trees/drift.ts'
import { removedRowOf, rowOf } from '../prepared-host.ts'
import { recordTreeAt, treeOf } from '../trees/recorded-tree.ts'
import { announced, assertSettled, begun, makeScene, type Scene, SNAPSHOT, STAGING, UPDATE } from './recovery-scene.ts'

/** The changes of a deployment that only removes a part. */
const REMOVAL = UPDATE.slice(0, 1)

const DAMAGED =
  'The run was interrupted in state installing and rolled back afterwards, but not all files are as before.'

/** A host on which a run has removed a part and died, and whose removed part has lost a file since. */
async function openDamaged(t: TestContext): Promise<Scene> {
  const scene = await makeScene(t)
  const place = { shelf: 'plugins', id: 'greeter', directory: 'plugins' } as const
  const tree = await recordTreeAt(scene.layout, installPath(scene.layout, place), treeOf({ 'main.py': 'old' }))
  await recordInstalled(scene.layout, { rows: [rowOf(tree)], removed: [] })
  writeFileSync(driftNotePath(join(scene.layout.root, STAGING), place), '{"modified":false,"states":[]}')
  for (const change of REMOVAL) await applyChanges(scene.layout.root, [change])
  rmSync(join(scene.layout.root, SNAPSHOT, 'main.py'))
  return scene
}

describe('recover, after a removal', () => {
  it('finishes a committed removal, with the same result if it runs twice', async t => {
    const scene = await makeScene(t)
    for (const change of REMOVAL) await applyChanges(scene.layout.root, [change])
    const removed = removedRowOf()
    for (let time = 1; time <= 2; time++) {
      await recordInstalled(scene.layout, { rows: [rowOf()], removed: [] })
      const commit: JournalRecord = {
        record: 'commit',
        at: '2026-01-02T03:04:07.000Z',
        rows: [],
        removed: [removed],
        discard: [],
      }
      scene.writeJournal([...begun(scene.sender), ...announced(REMOVAL), commit])
      await recoverDeadRun(scene.host)
      assert.deepEqual(readHostRecord(scene.layout), {
        installations: 0,
        installed: [],
        removed: [removed],
        projects: [],
        discard: [],
      })
      assert.ok(existsSync(join(scene.layout.root, SNAPSHOT)))
    }
  })

  it('verifies the removed part after the rollback', async t => {
    const scene = await openDamaged(t)
    scene.writeJournal([...begun(scene.sender), ...announced(REMOVAL)])
    const closed = await recoverDeadRun(scene.host)
    assert.deepEqual([closed?.report.outcome, closed?.report.rollback?.verified], ['inconsistent', false])
    assert.equal(closed?.report.error?.message, DAMAGED)
  })

  it('reports anew once a later attempt restores everything, although the outcome is inconsistent again', async t => {
    const scene = await openDamaged(t)
    const [snapshot, elsewhere] = [join(scene.layout.root, SNAPSHOT), join(scene.layout.root, 'elsewhere')]
    scene.writeJournal([...begun(scene.sender), ...announced(REMOVAL)])
    renameSync(snapshot, elsewhere)
    for (let attempt = 1; attempt <= 2; attempt++) {
      const run = { ...scene.host, run: { id: randomUUID(), url: null } }
      await assert.rejects(recoverDeadRun(run), { code: 'inconsistent' })
    }
    assert.equal(scene.journalText().match(/"record":"end"/g)?.length, 1)
    renameSync(elsewhere, snapshot)
    const sentences: string[] = []
    await recoverDeadRun({ ...scene.host, recovery: { onRecovered: sentence => void sentences.push(sentence) } })
    const failed = 'The run was interrupted in state installing and could not be rolled back.'
    assert.deepEqual(
      scene.sender.sent.map(({ report }) => [report.status, report.error?.message]),
      [
        ['failed', failed],
        ['failed', DAMAGED],
      ],
    )
    assert.match(String(sentences), /^The interrupted deployment of greeter 2\.0\.0 was recovered: [^.]*\.$/)
  })

  it('ends once as inconsistent if a later attempt restores everything, but a restored file is damaged', async t => {
    const scene = await openDamaged(t)
    const rollback = { restored: false, problems: ['in the way'], verified: null, healthy: null }
    const error = { code: 'step_failed' as const, message: 'the cause', step: 'env' }
    const failed = buildEnd(new Date(), { outcome: 'inconsistent', changed: true, error, rollback })
    scene.writeJournal([...begun(scene.sender), ...announced(REMOVAL), { record: 'end', end: failed }])
    const closed = await recoverDeadRun(scene.host)
    const { restored, verified, problems } = closed?.report.rollback ?? {}
    assert.deepEqual(
      [closed?.report.outcome, closed?.report.changed, restored, verified],
      ['inconsistent', false, true, false],
    )
    assert.deepEqual(closed?.report.error, error)
    assert.doesNotMatch(String(problems), /in the way/)
    assert.match(scene.log.lines.join('\n'), /^warning The interrupted deployment of .*main\.py/m)
    assert.equal(scene.sender.sent.length, 1)
    assertSettled(scene)
    assert.equal(await recoverDeadRun(scene.host), undefined)
  })
})
