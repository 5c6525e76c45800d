import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { DeployError } from '../../../src/core/errors.ts'
import { applyChanges, type PlannedChange, undoChange } from '../../../src/install/changes/change.ts'
import { UntouchableHostError } from '../../../src/install/host/ownership.ts'
import { readOwnIdentity } from '../../../src/install/host/process-identity.ts'
import { readInstalled, recordInstalled } from '../../../src/install/host/record.ts'
import { buildEnd } from '../../../src/install/journal/facts.ts'
import { formatLine } from '../../../src/install/journal/line.ts'
import type { JournalRecord } from '../../../src/install/journal/records.ts'
import { isInDoubt } from '../../../src/install/recovery/dead-run.ts'
import { recoverDeadRun } from '../../../src/install/recovery/recover.ts'
import { listTree, writeTree } from '../../folders.ts'
import { failOpen } from '../failing-calls.ts'
import { journalText } from '../journal/journal-text.ts'
import { DEPLOYMENT_ID, rowOf, senderThat, snapshotOf } from '../prepared-host.ts'
import {
  announced,
  assertReported,
  assertSettled,
  begun,
  makeScene,
  SNAPSHOT,
  STAGING,
  UPDATE,
  undone,
} from './recovery-scene.ts'

/** The changes of a first install in a directory of plugins that does not exist yet. */
const FIRST_INSTALL: readonly PlannedChange[] = [
  { type: 'make_directory', path: 'app' },
  { type: 'make_directory', path: 'app/of' },
  { type: 'move', from: `${STAGING}/tree`, to: 'app/of/greeter' },
]

function inconsistent(error: unknown): boolean {
  return error instanceof DeployError && error.code === 'inconsistent'
}

describe('recoverDeadRun', () => {
  it('only cleans the staging folder when there is no journal', async t => {
    const scene = await makeScene(t)
    const before = scene.plugins()
    rmSync(join(scene.layout.root, STAGING), { recursive: true })
    writeTree(scene.layout.staging, { 'discarded-1/main.py': 'old' })
    mkdirSync(join(scene.layout.staging, DEPLOYMENT_ID))
    assert.equal(await recoverDeadRun(scene.host), undefined)
    assert.deepEqual(scene.plugins(), before)
    assert.deepEqual(readdirSync(scene.layout.staging), [])
    assert.deepEqual(scene.reports(), [])
  })

  for (const code of ['ENOMEM', 'EMFILE', 'EACCES', 'EIO']) {
    it(`knows that there is no journal although opening it fails with ${code}`, async t => {
      for (const times of [1, Number.POSITIVE_INFINITY]) {
        const scene = await makeScene(t)
        const before = scene.plugins()
        failOpen(t, scene.layout.journal, { code, times })
        assert.equal(await recoverDeadRun(scene.host), undefined)
        assert.ok(!isInDoubt(scene.layout))
        assert.deepEqual([scene.plugins(), scene.reports()], [before, []])
      }
    })

    it(`rolls back although opening the journal once fails with ${code}`, async t => {
      const scene = await makeScene(t)
      scene.writeJournal([...begun(scene.sender), ...announced(UPDATE)])
      for (const change of UPDATE) await applyChanges(scene.layout.root, [scene.withInode(change)])
      failOpen(t, scene.layout.journal, { code, times: 1 })
      await recoverDeadRun(scene.host)
      assertReported(scene, { outcome: 'rolled_back' })
      assertSettled(scene)
    })
  }

  it('does not call a journal damaged that it cannot open', async t => {
    const scene = await makeScene(t)
    scene.writeJournal([...begun(scene.sender), ...announced(UPDATE)])
    const before = scene.plugins()
    failOpen(t, scene.layout.journal)
    await assert.rejects(recoverDeadRun(scene.host), {
      code: 'inconsistent',
      message: /cannot be read, so nothing was changed\. .* Only a run that can read the journal knows whether/,
    })
    assert.deepEqual(scene.plugins(), before)
  })

  it('sets aside a staging folder whose journal is missing, because it may contain files of the host', async t => {
    const scene = await makeScene(t)
    for (const change of UPDATE.slice(0, 2)) await applyChanges(scene.layout.root, [change])
    assert.equal(await recoverDeadRun(scene.host), undefined)
    assert.deepEqual(readdirSync(scene.layout.staging), [])
    const aside = join(scene.layout.snapshots, 'set-aside')
    const [name = ''] = readdirSync(aside)
    assert.equal(readFileSync(join(aside, name, 'tree/data/db'), 'utf8'), 'rows')
    assert.match(scene.log.lines.join('\n'), /set-aside/)
  })

  for (const [state, last] of [
    ['pending', 'pending'],
    ['fetching', 'failed'],
    ['installing', 'failed'],
  ] as const) {
    it(`reports a run that died in ${state} before any change as failed`, async t => {
      const scene = await makeScene(t)
      const before = scene.plugins()
      scene.writeJournal(begun(scene.sender, [...new Set(['pending', state])]))
      await recoverDeadRun(scene.host)
      assert.deepEqual(scene.plugins(), before)
      assertSettled(scene)
      assertReported(scene, { outcome: 'failed', status: 'failed', changed: false, rollback: null, state: last })
      assert.equal(scene.reports()[0]?.error?.code, 'interrupted')
    })
  }

  for (let made = 0; made <= UPDATE.length; made++) {
    for (const hasAnnouncedNext of made < UPDATE.length ? [false, true] : [false]) {
      const name = `${made} of ${UPDATE.length} changes${hasAnnouncedNext ? ' and the announcement of the next' : ''}`
      it(`restores the exact tree after ${name}`, async t => {
        const scene = await makeScene(t)
        const before = scene.plugins()
        for (const change of UPDATE.slice(0, made)) await applyChanges(scene.layout.root, [change])
        scene.writeJournal([...begun(scene.sender), ...announced(UPDATE.slice(0, made + (hasAnnouncedNext ? 1 : 0)))])
        const closed = await recoverDeadRun(scene.host)
        assert.deepEqual(scene.plugins(), before)
        assert.ok(!existsSync(join(scene.layout.root, SNAPSHOT)))
        assertSettled(scene)
        const outcome = made > 0 ? 'rolled_back' : 'failed'
        assert.equal(closed?.report.outcome, outcome)
        assertReported(scene, { outcome, changed: false, state: outcome })
      })
    }
  }

  for (let count = 0; count <= UPDATE.length; count++) {
    for (const isLastNoted of count > 0 ? [true, false] : [true]) {
      const name = `${count} changes undone${isLastNoted ? '' : ', the last one not recorded'}`
      it(`finishes the rollback of a run that died during its rollback: ${name}`, async t => {
        const scene = await makeScene(t)
        const before = scene.plugins()
        for (const change of UPDATE) await applyChanges(scene.layout.root, [change])
        const backwards = UPDATE.toReversed().slice(0, count)
        for (const change of backwards) await undoChange(scene.layout.root, scene.withInode(change))
        const noted = isLastNoted ? backwards : backwards.slice(0, -1)
        scene.writeJournal([...begun(scene.sender), ...announced(UPDATE), ...undone(noted)])
        await recoverDeadRun(scene.host)
        assert.deepEqual(scene.plugins(), before)
        assertSettled(scene)
        assertReported(scene, { outcome: 'rolled_back', state: 'rolled_back' })
      })
    }
  }

  it('restores a plugin in the directory to which the operator moved it before the run', async t => {
    const scene = await makeScene(t)
    const before = scene.plugins()
    await recordInstalled(scene.layout, { rows: [rowOf({ directory: 'app' })], removed: [] })
    for (const change of UPDATE) await applyChanges(scene.layout.root, [change])
    scene.writeJournal([...begun(scene.sender), ...announced(UPDATE)])
    assert.equal((await recoverDeadRun(scene.host))?.report.outcome, 'rolled_back')
    assert.deepEqual([scene.plugins(), readInstalled(scene.layout)[0]?.directory], [before, 'app'])
  })

  it('removes the empty directories that a first install made', async t => {
    const scene = await makeScene(t)
    for (const change of FIRST_INSTALL) await applyChanges(scene.layout.root, [change])
    scene.writeJournal([...begun(scene.sender), ...announced(FIRST_INSTALL)])
    await recoverDeadRun(scene.host)
    assert.ok(!existsSync(join(scene.layout.root, 'app')))
  })

  it('touches nothing if another user could have written to the directory of a first install', async t => {
    const scene = await makeScene(t)
    for (const change of FIRST_INSTALL) await applyChanges(scene.layout.root, [change])
    scene.writeJournal([...begun(scene.sender), ...announced(FIRST_INSTALL)])
    const journal = scene.journalText()
    chmodSync(join(scene.layout.root, 'app/of'), 0o777)
    await assert.rejects(recoverDeadRun(scene.host), UntouchableHostError)
    assert.deepEqual([scene.journalText(), existsSync(join(scene.layout.root, 'app/of/greeter'))], [journal, true])
  })

  it('does not mistake the restored version for the new one when the staged tree is gone', async t => {
    const scene = await makeScene(t)
    const before = scene.plugins()
    rmSync(join(scene.layout.root, STAGING), { recursive: true })
    scene.writeJournal([...begun(scene.sender), ...announced(UPDATE), ...undone(UPDATE.toReversed())])
    await recoverDeadRun(scene.host)
    assert.deepEqual(scene.plugins(), before)
    assertReported(scene, { outcome: 'rolled_back' })
  })

  it('ignores a torn last line, because its change was never made', async t => {
    const scene = await makeScene(t)
    const before = scene.plugins()
    scene.writeJournal(begun(scene.sender), formatLine(5, { record: 'change', change: UPDATE[0] }).slice(0, -20))
    await recoverDeadRun(scene.host)
    assert.deepEqual(scene.plugins(), before)
    assertReported(scene, { outcome: 'failed' })
  })

  it('refuses a journal in which a torn record is followed by a change that was made', async t => {
    const scene = await makeScene(t)
    const [first] = UPDATE
    assert.ok(first !== undefined)
    const state = { record: 'state', state: 's'.repeat(900), at: new Date().toISOString() } as const
    scene.writeJournal([...begun(scene.sender), state, ...announced([first])])
    await applyChanges(scene.layout.root, [scene.withInode(first)])
    const bytes = readFileSync(scene.layout.journal)
    const lost = Math.ceil((bytes.indexOf('sss') + 1) / 512) * 512
    writeFileSync(scene.layout.journal, bytes.fill(' ', lost, lost + 512))
    const before = listTree(scene.layout.root)
    assert.equal(isInDoubt(scene.layout), true)
    await assert.rejects(recoverDeadRun(scene.host), {
      code: 'inconsistent',
      message: /a change was made whose announcement follows a torn record/,
    })
    assert.deepEqual(listTree(scene.layout.root), before)
  })

  it('finishes the record and the cleanup of a committed deployment, whose outcome stays success', async t => {
    const scene = await makeScene(t)
    for (const change of UPDATE) await applyChanges(scene.layout.root, [change])
    const after = scene.plugins()
    writeTree(scene.layout.root, { '.hub-deploy/snapshots/plugins/greeter/9-0.9.0/main.py': 'older' })
    const row = rowOf({ snapshots: [] })
    const discard = ['.hub-deploy/snapshots/plugins/greeter/9-0.9.0']
    scene.writeJournal([
      ...begun(scene.sender, ['pending', 'healthchecking']),
      ...announced(UPDATE),
      { record: 'commit', at: '2026-01-02T03:04:07.000Z', rows: [row], removed: [], discard },
    ])
    await recoverDeadRun(scene.host)
    assert.deepEqual(scene.plugins(), after)
    assert.deepEqual(readInstalled(scene.layout), [row])
    assert.deepEqual(readdirSync(join(scene.layout.snapshots, 'plugins/greeter')), ['1-1.0.0'])
    assertSettled(scene)
    assertReported(scene, { outcome: 'success', changed: true, error: null, state: 'succeeded' })
  })

  it('finishes a committed deployment whose cleanup was half done', async t => {
    const scene = await makeScene(t)
    const commit: JournalRecord = {
      record: 'commit',
      at: '2026-01-02T03:04:07.000Z',
      rows: [rowOf()],
      removed: [],
      discard: ['.hub-deploy/snapshots/plugins/greeter/8-1.0.0'],
    }
    scene.writeJournal([...begun(scene.sender), commit])
    await recoverDeadRun(scene.host)
    scene.writeJournal([...begun(scene.sender), commit])
    await recoverDeadRun(scene.host)
    assert.equal(readInstalled(scene.layout).length, 1)
    assert.equal(scene.reports().length, 1)
  })

  it('reports the end that the run itself recorded', async t => {
    const scene = await makeScene(t)
    const error = { code: 'step_failed' as const, message: 'the cause', step: 'env' }
    const rollback = { restored: true, problems: [], verified: null, healthy: null }
    const end = {
      outcome: 'rolled_back' as const,
      changed: false,
      error,
      rollback,
      completed_at: '2026-01-02T03:04:08.000Z',
    }
    scene.writeJournal([
      ...begun(scene.sender),
      ...announced(UPDATE.slice(0, 1)),
      ...undone(UPDATE.slice(0, 1)),
      { record: 'end', end },
    ])
    await recoverDeadRun(scene.host)
    assertReported(scene, { outcome: 'rolled_back', error, completed_at: end.completed_at })
  })

  it('does not report again what the hub has accepted, even if the local report is gone', async t => {
    const scene = await makeScene(t)
    const rollback = { restored: true, problems: [], verified: true, healthy: null }
    const end = buildEnd(new Date(), { outcome: 'rolled_back', rollback })
    const run = [...begun(scene.sender), ...announced(UPDATE.slice(0, 1)), ...undone(UPDATE.slice(0, 1))]
    scene.writeJournal([...run, { record: 'end', end }, { record: 'reported', attempts: 2 }])
    await recoverDeadRun(scene.host)
    assert.deepEqual(scene.sender.sent, [])
    assert.deepEqual(
      scene.reports().map(({ reported }) => reported),
      [{ accepted: true, attempts: 2, error: null }],
    )
  })

  it('keeps the journal while it cannot roll back, and rolls back once the cause is gone', async t => {
    const scene = await makeScene(t)
    const before = scene.plugins()
    for (const change of UPDATE) await applyChanges(scene.layout.root, [change])
    scene.writeJournal([...begun(scene.sender), ...announced(UPDATE)])
    const elsewhere = join(scene.layout.root, 'elsewhere')
    renameSync(join(scene.layout.root, 'plugins/greeter/data'), elsewhere)
    await assert.rejects(recoverDeadRun(scene.host), inconsistent)
    assert.ok(existsSync(scene.layout.journal))
    assert.deepEqual(
      scene.reports().map(report => [report.outcome, report.status, report.rollback?.restored, report.changed]),
      [['inconsistent', 'failed', false, true]],
    )
    assert.notEqual(readdirSync(scene.layout.staging).length, 0)
    renameSync(elsewhere, join(scene.layout.root, STAGING, 'tree/data'))
    await recoverDeadRun(scene.host)
    assert.deepEqual(scene.plugins(), before)
    assertSettled(scene)
    assert.deepEqual(
      scene.reports().map(report => [report.outcome, report.error?.message]),
      [['rolled_back', 'The run was interrupted in state installing and rolled back afterwards.']],
    )
  })

  it('makes no more changes after 5 failed attempts', async t => {
    const scene = await makeScene(t)
    scene.writeJournal([...begun(scene.sender), ...announced(UPDATE.slice(0, 1))])
    renameSync(join(scene.layout.root, 'plugins/greeter'), join(scene.layout.root, 'elsewhere'))
    for (let attempt = 1; attempt <= 5; attempt++) {
      const run = { ...scene.host, run: { id: randomUUID(), url: null } }
      for (const step of ['main', 'post']) await assert.rejects(recoverDeadRun(run), inconsistent, step)
    }
    const journal = scene.journalText()
    renameSync(join(scene.layout.root, 'elsewhere'), join(scene.layout.root, SNAPSHOT))
    await assert.rejects(recoverDeadRun(scene.host), inconsistent)
    assert.equal(scene.journalText(), journal)
    assert.ok(existsSync(join(scene.layout.root, SNAPSHOT)))
    assert.equal(scene.sender.sent.length, 1, `${scene.sender.sent.length} reports were sent to the hub`)
  })

  const at = '2026-01-02T03:04:07.000Z'
  const [ino, times] = ['7', '1 1']
  const foreign: Record<string, object> = {
    'an unknown record': { record: 'else' },
    'a change outside the root': {
      record: 'change',
      change: { type: 'move', from: 'plugins/other', to: '../x', ino, times },
    },
    'a move of another plugin': {
      record: 'change',
      change: { type: 'move', from: 'plugins/other', to: SNAPSHOT, ino, times },
    },
    'a move out of another staging folder': {
      record: 'change',
      change: { type: 'move', from: `${STAGING.replace('7f6c', '0000')}/tree`, to: 'plugins/greeter', ino, times },
    },
    'a move without an inode': {
      record: 'change',
      change: { type: 'move', from: 'plugins/greeter', to: SNAPSHOT, times },
    },
    'a discarded plugin': { record: 'commit', at, rows: [rowOf()], removed: [], discard: ['plugins/other'] },
    "another plugin's discarded snapshot": {
      record: 'commit',
      at,
      rows: [rowOf()],
      removed: [],
      discard: ['.hub-deploy/snapshots/plugins/other/1-1.0.0'],
    },
    'a discarded snapshot that it retains': {
      record: 'commit',
      at,
      rows: [rowOf({ snapshots: [snapshotOf('1-1.0.0')] })],
      removed: [],
      discard: [SNAPSHOT],
    },
    'a commit of another plugin': { record: 'commit', at, rows: [rowOf({ id: 'other' })], removed: [], discard: [] },
    'a discarded root': { record: 'commit', at, rows: [rowOf()], removed: [], discard: ['.'] },
    'a report elsewhere': { record: 'facts', facts: { started_at: '../../../../x' } },
    'an undo without its change': { record: 'undone', of: 1, was_made: true },
  }
  for (const [name, record] of Object.entries(foreign)) {
    it(`refuses a journal with ${name} and changes nothing`, async t => {
      const scene = await makeScene(t)
      const before = listTree(scene.layout.root)
      const whole = [...begun(scene.sender), record] as Parameters<typeof scene.writeJournal>[0]
      writeFileSync(scene.layout.journal, journalText(whole))
      await assert.rejects(recoverDeadRun(scene.host), inconsistent)
      const { '.hub-deploy/journal.jsonl': _, ...after } = listTree(scene.layout.root)
      assert.deepEqual(after, before)
    })
  }

  it('keeps in the outbox the report of a dead run to another hub', async t => {
    const scene = await makeScene(t)
    scene.writeJournal(begun(senderThat({ accepted: true, attempts: 1 }, 'http://other greeter')))
    await recoverDeadRun(scene.host)
    assert.deepEqual(scene.sender.sent, [])
    assert.equal(readdirSync(scene.layout.outbox).length, 1)
  })

  it('does not remove a settings file that the dead run has not written', async t => {
    const scene = await makeScene(t)
    linkSync(join(scene.layout.root, 'plugins/other/main.py'), join(scene.layout.root, 'plugins/greeter.env'))
    scene.writeJournal([...begun(scene.sender), ...announced(UPDATE.slice(3))])
    await recoverDeadRun(scene.host)
    assert.ok(existsSync(join(scene.layout.root, 'plugins/greeter.env')))
  })

  it('removes the temporary files of killed processes, but neither those of live processes nor a directory', async t => {
    const scene = await makeScene(t)
    const name = (pid: number): string => join(scene.layout.reports, `x.json.${pid}.${DEPLOYMENT_ID}.tmp`)
    for (const path of [name(2 ** 31 - 1), name(process.ppid)]) writeFileSync(path, '')
    mkdirSync(name(2 ** 31 - 2))
    await recoverDeadRun(scene.host)
    const left = [2 ** 31 - 1, process.ppid, 2 ** 31 - 2].map(pid => existsSync(name(pid)))
    assert.deepEqual(left, [false, true, true])
  })

  it('removes the temporary files of other containers, whose processes have the same pids', async t => {
    const scene = await makeScene(t)
    const own = join(scene.layout.trees, `record.${process.pid}.${DEPLOYMENT_ID}.tmp`)
    const old = join(scene.layout.trees, `record.${process.ppid}.${DEPLOYMENT_ID}.tmp`)
    for (const path of [own, old]) writeFileSync(path, '')
    utimesSync(old, 0, 0)
    await recoverDeadRun(scene.host)
    assert.deepEqual(
      [own, old].map(path => existsSync(path)),
      [false, false],
    )
  })

  it('keeps the file with which a process of another host waits for the lock', async t => {
    const scene = await makeScene(t)
    const path = `${scene.layout.lock}.${2 ** 31 - 1}.${DEPLOYMENT_ID}.tmp`
    const waiter = {
      ...readOwnIdentity(),
      hostname: 'elsewhere',
      id: DEPLOYMENT_ID,
      run_url: null,
      since: 'now',
    }
    writeFileSync(path, JSON.stringify(waiter))
    await recoverDeadRun(scene.host)
    assert.ok(existsSync(path))
  })
})
