import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { applyChanges, type PlannedChange } from '../../../src/install/changes/change.ts'
import { buildEnd } from '../../../src/install/journal/facts.ts'
import { recoverDeadRun } from '../../../src/install/recovery/recover.ts'
import { writeTree } from '../../folders.ts'
import { announced, begun, makeScene, type Scene, SNAPSHOT, STAGING, UPDATE, undone } from './recovery-scene.ts'

const AT = '2026-01-02T03:04:07.000Z'

/**
 * A host on which a run died after it had installed a new version. The new version has copied the kept path to
 * `storage`, and the kept path itself is now at `elsewhere`.
 */
async function openScene(t: TestContext): Promise<Scene> {
  const scene = await makeScene(t)
  const { root } = scene.layout
  scene.writeJournal([...begun(scene.sender), ...announced(UPDATE)])
  for (const change of UPDATE) await applyChanges(root, [change])
  writeTree(root, { 'plugins/greeter/storage/db': 'rows of the copy' })
  renameSync(join(root, 'plugins/greeter/data'), join(root, 'elsewhere'))
  return scene
}

/** Recovers the host in another run. */
async function recoverAgain({ host }: Scene): Promise<void> {
  await recoverDeadRun({ ...host, run: { ...host.run, id: randomUUID() } })
}

describe('the recovery of a host whose new version has removed a kept path', () => {
  it('stops once, and restores everything if the path is put back', async t => {
    const scene = await openScene(t)
    const { root, journal, snapshots } = scene.layout
    await assert.rejects(recoverAgain(scene), {
      code: 'inconsistent',
      message: /data was moved to .* is now at neither path.*put it/,
    })
    renameSync(join(root, 'elsewhere'), join(root, SNAPSHOT, 'data'))
    await recoverAgain(scene)
    assert.equal(readFileSync(join(root, 'plugins/greeter/data/db'), 'utf8'), 'rows')
    assert.deepEqual([existsSync(journal), existsSync(join(snapshots, 'set-aside'))], [false, false])
  })

  it('stops once and names the path even if an earlier attempt had failed at something else', async t => {
    const scene = await openScene(t)
    const rollback = { restored: false, problems: ['in the way'], verified: null, healthy: null }
    const error = { code: 'step_failed' as const, message: 'the cause', step: 'env' }
    const end = buildEnd(new Date(), { outcome: 'inconsistent', changed: true, error, rollback })
    scene.writeJournal([...begun(scene.sender), ...announced(UPDATE), { record: 'end', end }])
    await assert.rejects(recoverAgain(scene), {
      code: 'inconsistent',
      message: /data was moved to .* is now at neither path/,
    })
    assert.match(String(scene.reports().at(-1)?.rollback?.problems), /is now at neither path/)
    renameSync(join(scene.layout.root, 'elsewhere'), join(scene.layout.root, SNAPSHOT, 'data'))
    await recoverAgain(scene)
    assert.equal(readFileSync(join(scene.layout.root, 'plugins/greeter/data/db'), 'utf8'), 'rows')
  })

  it('restores the old version without the path if the path is gone for good, and keeps the tree that may contain a copy', async t => {
    const scene = await openScene(t)
    const { root, journal, snapshots } = scene.layout
    rmSync(join(root, 'elsewhere'), { recursive: true })
    await assert.rejects(recoverAgain(scene), { code: 'inconsistent' })
    await recoverAgain(scene)
    assert.deepEqual(readdirSync(join(root, 'plugins/greeter')), ['main.py'])
    assert.ok(!existsSync(journal))
    const [aside = ''] = readdirSync(join(snapshots, 'set-aside'))
    const copy = join(snapshots, 'set-aside', aside, 'tree/storage/db')
    assert.equal(readFileSync(copy, 'utf8'), 'rows of the copy')
    assert.deepEqual(scene.reports().at(-1)?.rollback?.problems, [
      'plugins/greeter/data was removed or replaced by another process after the deployment began, and cannot be put back',
    ])
    assert.match(scene.log.lines.join('\n'), new RegExp(`warning The files that .* are now in \\S*${aside}\\.`))
  })

  it('keeps the tree that may contain a copy even if an earlier recovery was killed after it had continued without the path', async t => {
    const scene = await makeScene(t)
    const { root, snapshots } = scene.layout
    const [update, kept, install, settings] = UPDATE as [PlannedChange, PlannedChange, PlannedChange, PlannedChange]
    scene.writeJournal([
      ...[...begun(scene.sender), ...announced(UPDATE), ...undone([settings, install])],
      { record: 'undone', change: kept, was_made: true, lost: 'greeter/data is lost' },
    ])
    await applyChanges(root, [update])
    rmSync(join(root, SNAPSHOT, 'data'), { recursive: true })
    await recoverAgain(scene)
    const [aside = ''] = readdirSync(join(snapshots, 'set-aside'))
    assert.ok(existsSync(join(snapshots, 'set-aside', aside, 'tree/main.py')))
    assert.deepEqual(scene.reports().at(-1)?.rollback?.problems, ['greeter/data is lost'])
  })

  it('names the path once after a cancelled run that had no time for its services', async t => {
    const scene = await makeScene(t)
    const [update, kept, ...newer] = UPDATE as [PlannedChange, PlannedChange, ...PlannedChange[]]
    const lost =
      'plugins/greeter/data was removed or replaced by another process after the deployment began, and cannot be put back'
    const rollback = { restored: true, problems: [lost], verified: null, healthy: null }
    const end = { outcome: 'rolled_back' as const, changed: false, error: null, rollback, completed_at: AT }
    scene.writeJournal([
      ...[...begun(scene.sender), ...announced(UPDATE), ...undone([...newer].reverse())],
      { record: 'undone', change: kept, was_made: true, lost },
      ...undone([update]),
      { record: 'end', end, unfinished: true },
    ])
    rmSync(join(scene.layout.root, 'plugins/greeter/data'), { recursive: true })
    await recoverAgain(scene)
    assert.deepEqual(scene.reports().at(-1)?.rollback?.problems, [lost])
  })

  for (const isUndone of [false, true])
    it(`continues at once, and keeps the tree that may contain a copy, if something else is in the place of the path${isUndone ? ', even after a kill' : ''}`, async t => {
      const scene = await openScene(t)
      const { root, snapshots } = scene.layout
      writeTree(root, { [`${SNAPSHOT}/data/db`]: 'no rows' })
      if (isUndone) {
        const newer = [...UPDATE.slice(2)].reverse()
        scene.writeJournal([...begun(scene.sender), ...announced(UPDATE), ...undone(newer)])
        rmSync(join(root, 'plugins/greeter.env'))
        renameSync(join(root, 'plugins/greeter'), join(root, STAGING, 'tree'))
      }
      await recoverAgain(scene)
      assert.equal(readFileSync(join(root, 'plugins/greeter/data/db'), 'utf8'), 'no rows')
      const [aside = ''] = readdirSync(join(snapshots, 'set-aside'))
      assert.equal(readFileSync(join(snapshots, 'set-aside', aside, 'tree/storage/db'), 'utf8'), 'rows of the copy')
      assert.equal(scene.reports().at(-1)?.rollback?.problems.length, 1)
    })
})

describe('the recovery of a host whose old version replaced a kept path before that path was moved', () => {
  it('loses no file of the kept path', async t => {
    const scene = await makeScene(t)
    const { root, snapshots } = scene.layout
    const [update, kept] = UPDATE as [PlannedChange, PlannedChange]
    scene.writeJournal([...begun(scene.sender), ...announced([update, kept])])
    await applyChanges(root, [update])
    renameSync(join(root, SNAPSHOT, 'data'), join(root, 'elsewhere'))
    writeTree(root, { [`${SNAPSHOT}/data/db`]: 'new rows' })
    await recoverAgain(scene)
    assert.equal(readFileSync(join(root, 'plugins/greeter/data/db'), 'utf8'), 'new rows')
    assert.ok(!existsSync(join(snapshots, 'set-aside')))
    assert.deepEqual(scene.reports().at(-1)?.rollback?.problems, [])
  })
})
