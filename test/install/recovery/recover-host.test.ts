import assert from 'node:assert/strict'
import { chmodSync, existsSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { applyChanges } from '../../../src/install/changes/change.ts'
import { UntouchableHostError } from '../../../src/install/host/ownership.ts'
import { recordInstalled } from '../../../src/install/host/record.ts'
import { buildEnd } from '../../../src/install/journal/facts.ts'
import {
  holdLock,
  recoverBeforeRefusal,
  recoverHost,
  recoverMainStep,
} from '../../../src/install/recovery/recover-host.ts'
import { writeLocalReport } from '../../../src/install/reports/local-report.ts'
import { DEPLOYMENT_ID, NO_SECRETS, reportOf, rowOf } from '../prepared-host.ts'
import {
  announced,
  assertReported,
  assertSettled,
  begun,
  makeScene,
  type Scene,
  STAGING,
  UPDATE,
} from './recovery-scene.ts'

const REFUSED = buildEnd(new Date(), {
  outcome: 'failed',
  error: { code: 'invalid_input', message: 'version is not a version.', step: null },
})

async function interruptUpdate({ layout, sender, writeJournal }: Scene): Promise<void> {
  for (const change of UPDATE) await applyChanges(layout.root, [change])
  writeJournal([...begun(sender), ...announced(UPDATE)])
}

describe('recoverHost', () => {
  it('does not wait for the lock when there is nothing to recover', async t => {
    const scene = await makeScene(t)
    const held = await holdLock(scene.host, 0)
    assert.equal(await recoverHost(scene.host, 5000), undefined)
    held.release()
  })

  it('rolls back the changes of a dead run, and releases the lock', async t => {
    const scene = await makeScene(t)
    const before = scene.plugins()
    await interruptUpdate(scene)
    const closed = await recoverHost(scene.host, 5000)
    assert.equal(closed?.report.outcome, 'rolled_back')
    assert.deepEqual(scene.plugins(), before)
    assertSettled(scene)
    assert.ok(!existsSync(scene.layout.lock))
  })

  it('succeeds after an operator has removed the whole trash', async t => {
    const scene = await makeScene(t)
    const before = scene.plugins()
    await interruptUpdate(scene)
    rmdirSync(scene.layout.trash)
    assert.equal((await recoverHost(scene.host, 5000))?.report.outcome, 'rolled_back')
    assert.deepEqual(scene.plugins(), before)
    assertSettled(scene)
  })

  for (const made of [[], UPDATE.slice(0, 3)])
    it(`does not ask who can write to a plugin in which settings were created (${made.length} changes before)`, async t => {
      const scene = await makeScene(t)
      await recordInstalled(scene.layout, { rows: [rowOf()], removed: [] })
      chmodSync(join(scene.layout.root, 'plugins/greeter'), 0o775)
      const before = scene.plugins()
      for (const change of made) await applyChanges(scene.layout.root, [change])
      const folder = { type: 'make_directory', path: 'plugins/greeter/conf' } as const
      const file = {
        type: 'create_file',
        staged: `${STAGING}/greeter.env`,
        path: 'plugins/greeter/conf/app.env',
      } as const
      await applyChanges(scene.layout.root, [folder, file])
      scene.writeJournal([...begun(scene.sender), ...announced([...made, folder, file])])
      await recoverHost(scene.host, 5000)
      assert.deepEqual(scene.plugins(), before)
      assertSettled(scene)
    })

  it('holds the lock until the journal is gone', async t => {
    const scene = await makeScene(t)
    await interruptUpdate(scene)
    const { lock, journal } = scene.layout
    let isOver = false
    const recovering = recoverHost(scene.host, 5000).finally(() => {
      isOver = true
    })
    for (; !isOver; await setImmediate()) {
      const hasBegun = existsSync(journal) && readFileSync(journal, 'utf8').includes('"record":"recovery"')
      assert.ok(!hasBegun || existsSync(lock), 'another run could take the lock during the recovery')
    }
    assert.equal((await recovering)?.report.outcome, 'rolled_back')
  })

  it('releases the lock when the recovery fails', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.layout.journal, '{\n')
    await assert.rejects(recoverHost(scene.host, 5000), { code: 'inconsistent' })
    assert.ok(!existsSync(scene.layout.lock))
  })
})

const KILLED = { lockTimeoutMs: 0, hasEnded: false }
const ENDED = { lockTimeoutMs: 0, hasEnded: true }
const OTHER_RUN = '22222222-2222-4222-8222-222222222222'

/** The host as the post step of the run that `makeScene` has interrupted sees it. */
function hostOfPost({ host }: Scene, id = DEPLOYMENT_ID): Scene['host'] {
  return { ...host, run: { id, url: null } }
}

describe('recoverMainStep', () => {
  it('reports a run that was killed before it had announced a change', async t => {
    const scene = await makeScene(t)
    const plugins = scene.plugins()
    scene.writeJournal(begun(scene.sender, ['pending', 'fetching']))
    assert.equal((await recoverMainStep(hostOfPost(scene), KILLED))?.report.outcome, 'failed')
    assertReported(scene, { outcome: 'failed', changed: false, state: 'failed' })
    assert.deepEqual(scene.plugins(), plugins)
    assertSettled(scene)
  })

  for (const main of [KILLED, ENDED])
    it(`rolls back what its main step left${main.hasEnded ? ', even if that step has ended by itself' : ''}`, async t => {
      const scene = await makeScene(t)
      await interruptUpdate(scene)
      assert.equal((await recoverMainStep(hostOfPost(scene), main))?.report.outcome, 'rolled_back')
      assertSettled(scene)
    })

  it('leaves a live run and a damaged journal alone if its main step has ended by itself', async t => {
    const scene = await makeScene(t)
    await interruptUpdate(scene)
    const lock = await holdLock(scene.host, 0)
    assert.equal(await recoverMainStep(hostOfPost(scene, OTHER_RUN), ENDED), undefined)
    lock.release()
    writeFileSync(scene.layout.journal, '{\n')
    assert.equal(await recoverMainStep(hostOfPost(scene), ENDED), undefined)
    assert.ok(existsSync(scene.layout.journal))
  })

  it('says that nothing is left to recover if the live run of another step has the host', async t => {
    const scene = await makeScene(t)
    scene.writeJournal(begun(scene.sender))
    const lock = await holdLock(scene.host, 0)
    t.after(() => lock.release())
    assert.equal(await recoverMainStep(hostOfPost(scene, OTHER_RUN), KILLED), undefined)
    assert.match(scene.log.lines.join('\n'), new RegExp(`${OTHER_RUN} has left nothing to recover`))
    await assert.rejects(recoverMainStep(hostOfPost(scene), KILLED), { code: 'locked' })
  })

  it('returns how its main step ended if the run that now has the host has reported it', async t => {
    const scene = await makeScene(t)
    scene.writeJournal(begun(scene.sender))
    const reports = { layout: scene.layout, secrets: NO_SECRETS }
    await writeLocalReport(reports, reportOf({ slug: 'other', outcome: 'success' }))
    await writeLocalReport(reports, reportOf({ deployment_id: OTHER_RUN, outcome: 'failed' }))
    const lock = await holdLock(scene.host, 0)
    t.after(() => lock.release())
    const { report } = (await recoverMainStep(hostOfPost(scene, OTHER_RUN), KILLED)) ?? {}
    assert.deepEqual([report?.deployment_id, report?.outcome], [OTHER_RUN, 'failed'])
  })
})

describe('recoverBeforeRefusal', () => {
  it('recovers the host and does not change how the run ends', async t => {
    const scene = await makeScene(t)
    const before = scene.plugins()
    await interruptUpdate(scene)
    assert.equal(await recoverBeforeRefusal(scene.host, REFUSED), REFUSED)
    assert.deepEqual(scene.plugins(), before)
    assertReported(scene, { outcome: 'rolled_back' })
  })

  it('ends the run as inconsistent when the host cannot be recovered, and gives both reasons', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.layout.journal, '{\n')
    const known = await recoverBeforeRefusal(scene.host, REFUSED)
    assert.ok(!(known instanceof Error))
    const { outcome, error, ...end } = known
    assert.deepEqual([outcome, error?.code], ['inconsistent', 'invalid_input'])
    assert.ok(error?.message.startsWith('version is not a version. Also: '), error?.message)
    assert.ok(error?.message.includes(scene.layout.journal), error?.message)
    const { outcome: _, error: __, ...expected } = REFUSED
    assert.deepEqual(end, expected)
  })

  it('does not obey a journal that another user may have written since the host was checked', async t => {
    const scene = await makeScene(t)
    await interruptUpdate(scene)
    const journal = readFileSync(scene.layout.journal)
    chmodSync(scene.layout.own, 0o770)
    const known = await recoverBeforeRefusal(scene.host, REFUSED)
    assert.ok(known instanceof UntouchableHostError)
    assert.equal(known.code, 'unsafe_host')
    assert.deepEqual(readFileSync(scene.layout.journal), journal)
  })
})
