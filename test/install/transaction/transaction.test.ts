import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { RollbackError } from '../../../src/core/errors.ts'
import { applyChanges, type PlannedChange, undoChange } from '../../../src/install/changes/change.ts'
import { startJournal } from '../../../src/install/journal/journal.ts'
import { readJournal } from '../../../src/install/journal/read.ts'
import { type AnnouncedChange, pendingChanges } from '../../../src/install/journal/records.ts'
import { beginTransaction, type Transaction } from '../../../src/install/transaction/transaction.ts'
import { type ChangeLog, isAnyMade, undoChanges } from '../../../src/install/transaction/undo.ts'
import { sampled } from '../../extent.ts'
import { listTree, temporaryDirectory, writeTree } from '../../folders.ts'
import { failCalls, watchCalls } from '../failing-calls.ts'
import { collectLog, factsOf, rowOf } from '../prepared-host.ts'

/** An update as the steps make it: old tree out, kept path over, new tree in, settings written. */
const UPDATE: readonly PlannedChange[] = [
  { type: 'move', from: 'plugins/x', to: 'aside/x' },
  { type: 'move', from: 'aside/x/data', to: 'staged/x/data' },
  { type: 'move', from: 'staged/x', to: 'plugins/x' },
  { type: 'create_file', staged: 'staged/x.env', path: 'plugins/x.env' },
]

interface Scene {
  root: string
  journalPath: string
  transaction: Transaction
  changeLog: ChangeLog
  listing(): Record<string, string>
}

async function makeScene(t: Parameters<typeof temporaryDirectory>[0]): Promise<Scene> {
  const folder = temporaryDirectory(t)
  const root = join(folder, 'root')
  writeTree(root, {
    'plugins/x/main': 'old',
    'plugins/x/data/db': 'rows',
    'staged/x/main': 'new',
    'staged/x.env': 'A=1',
  })
  mkdirSync(join(root, 'aside'))
  const journalPath = join(folder, 'journal.jsonl')
  const begin = { facts: factsOf(), report_address: null, keep_paths: [] }
  const journal = await startJournal(journalPath, { record: 'begin', ...begin })
  t.after(() => journal.close())
  const changeLog = { root, journal, log: collectLog() }
  return {
    root,
    journalPath,
    changeLog,
    transaction: beginTransaction(changeLog),
    listing: () => listTree(root),
  }
}

/** Returns all records but the first, without the fields that differ from run to run. */
function recordsOf(path: string): { record: string; change?: PlannedChange; of?: number }[] {
  return readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .slice(1)
    .map(line => JSON.parse(line, (key, value) => (['ino', 'times', 'seq', 'sum'].includes(key) ? undefined : value)))
}

describe('Transaction', () => {
  for (let made = 0; made <= UPDATE.length; made++) {
    it(`rolls back ${made} of ${UPDATE.length} changes to the exact tree, and changes nothing when repeated`, async t => {
      const { transaction, listing } = await makeScene(t)
      const before = listing()
      for (const change of UPDATE.slice(0, made)) await transaction.apply([change])
      assert.equal(transaction.changed, made > 0)
      assert.equal(await transaction.undo(), made > 0)
      assert.deepEqual(listing(), before)
      assert.equal(await transaction.undo(), false)
      assert.deepEqual(listing(), before)
    })
  }

  it('announces each change before making it, and rolls back the newest first', async t => {
    const { transaction, journalPath } = await makeScene(t)
    for (const change of UPDATE) await transaction.apply([change])
    await transaction.undo()
    assert.deepEqual(
      recordsOf(journalPath).map(({ record, change, of }) => [record, change ?? of]),
      [...UPDATE.map(change => ['change', change]), ...[5, 4, 3, 2].map(seq => ['undone', seq])],
    )
  })

  it('announces a change even if the file system then refuses it', async t => {
    const { transaction, journalPath } = await makeScene(t)
    const change: PlannedChange = { type: 'move', from: 'plugins/x', to: 'no/such/folder' }
    await assert.rejects(transaction.apply([change]), { code: 'ENOENT' })
    assert.deepEqual(recordsOf(journalPath), [{ record: 'change', change }])
    assert.equal(await transaction.undo(), false)
  })

  for (const [name, change] of [
    ['its target is taken', { type: 'move', from: 'plugins/x', to: 'aside' }],
    ['its source is missing', { type: 'move', from: 'plugins/gone', to: 'aside/gone' }],
    ['its directory exists', { type: 'make_directory', path: 'aside' }],
  ] as const) {
    it(`does not announce a change that is impossible because ${name}`, async t => {
      const { transaction, journalPath, listing } = await makeScene(t)
      const before = listing()
      await assert.rejects(transaction.apply([change]), {
        code: 'step_failed',
        message: / has just (?:dis)?appeared: /,
      })
      assert.deepEqual(recordsOf(journalPath), [])
      await transaction.undo()
      assert.deepEqual(listing(), before)
    })
  }

  it('does not count a new directory as a change to the running version', async t => {
    const { transaction } = await makeScene(t)
    await transaction.apply([{ type: 'make_directory', path: 'extensions' }])
    assert.equal(transaction.changed, false)
    assert.equal(await transaction.undo(), false)
  })

  it('commits with one record', async t => {
    const { transaction, journalPath } = await makeScene(t)
    await transaction.commit({ rows: [rowOf()], removed: [], discard: ['.hub-deploy/snapshots/plugins/greeter/1-1.0'] })
    assert.deepEqual(
      recordsOf(journalPath).map(({ record }) => record),
      ['commit'],
    )
  })
})

describe('undoChanges', () => {
  async function madeIn(t: Parameters<typeof temporaryDirectory>[0]) {
    const scene = await makeScene(t)
    const before = scene.listing()
    for (const change of UPDATE) await scene.transaction.apply([change])
    const announced = (): AnnouncedChange[] =>
      recordsWithInodes(scene.journalPath).flatMap(({ record, seq, change }) =>
        record === 'change' && change !== undefined ? [{ seq, change }] : [],
      )
    return { ...scene, before, announced }
  }

  it('stops at the first change that cannot be undone, names the rest, and continues once the cause is gone', async t => {
    const { root, changeLog, listing, before, announced } = await madeIn(t)
    renameSync(join(root, 'plugins/x/data'), join(root, 'elsewhere'))
    const pending = announced()
    await assert.rejects(undoChanges(changeLog, pending), error => {
      assert.ok(error instanceof RollbackError)
      assert.equal(error.code, 'rollback_failed')
      assert.match(error.message, /plugins\/x was moved to aside\/x/)
      assert.doesNotMatch(error.message, /plugins\/x\.env was created/)
      return true
    })
    renameSync(join(root, 'elsewhere'), join(root, 'staged/x/data'))
    assert.deepEqual(pending, announced().slice(0, 2))
    assert.equal(await undoChanges(changeLog, pending), true)
    assert.deepEqual(listing(), before)
  })

  it('ends the cause of a failed undo with one period', async t => {
    const { changeLog, announced } = await madeIn(t)
    for (const cause of ['The disk is full', 'The disk is full.']) {
      const append = async () => {
        throw new Error(cause)
      }
      const journal = { append, close: () => {} }
      await assert.rejects(undoChanges({ ...changeLog, journal }, announced()), {
        message: /^The old version could not be restored: The disk is full\. Not undone: /,
      })
    }
  })

  it('undoes no change twice when no undo could be recorded, and knows that all were made', async t => {
    const { changeLog, listing, before, announced } = await madeIn(t)
    const unwritable = { ...changeLog, journal: { append: async () => undefined, close: () => {} } }
    for (let time = 1; time <= 3; time++) {
      assert.equal(await undoChanges(unwritable, announced()), true)
      assert.deepEqual(listing(), before)
    }
  })

  it('restores the exact tree however many records of earlier undos were lost', async t => {
    for (let done = 0; done <= UPDATE.length; done++) {
      for (let lost = 0; lost <= done; lost++) {
        const { root, changeLog, listing, before, announced } = await madeIn(t)
        for (const { change } of announced().toReversed().slice(0, done)) await undoChange(root, change)
        assert.equal(isAnyMade(root, announced()), done < UPDATE.length)
        const recorded = UPDATE.length - (done - lost)
        await undoChanges(changeLog, announced().slice(0, recorded))
        assert.deepEqual(listing(), before)
      }
    }
  })

  it('does not look for a path that was put back and then replaced by the old version', async t => {
    const { root, changeLog, before, listing, announced } = await madeIn(t)
    const unwritable = { ...changeLog, journal: { append: async () => undefined, close: () => {} } }
    await undoChanges(unwritable, announced())
    rmSync(join(root, 'plugins/x/data'), { recursive: true })
    await undoChanges(changeLog, announced())
    const { 'plugins/x/data': _, 'plugins/x/data/db': __, ...others } = before
    assert.deepEqual(listing(), others)
  })
})

describe('an undo of which one call fails', () => {
  const places = (scene: TogetherScene, ...paths: string[]): string[] => paths.map(path => join(scene.root, path))

  it('is complete if each rename fails once, and records each undo', async t => {
    const scene = await makeSwitched(t)
    for (const path of places(scene, ...IDS.map(id => `plugins/${id}`), ...IDS.map(snapshotOf)))
      failCalls(t, 'renameSync', path, { code: 'EIO', times: 1 })
    assert.equal(await scene.transaction.undo(), true)
    assert.deepEqual([scene.announced(), scene.listing()], [[], scene.before])
  })

  it('is complete whichever of its file calls fails once', async t => {
    const undisturbed = await makeSwitched(t)
    const watch = watchCalls(t)
    const calls = watch(undisturbed.root)
    await undisturbed.transaction.undo()
    assert.ok(calls.length > 50, `only ${calls.length} calls were seen`)
    const tried = sampled([...calls.entries()], 20).map(async ([index, call]) => {
      const scene = await makeSwitched(t)
      watch(scene.root, index + 1)
      assert.equal(await scene.transaction.undo(), true, call)
      assert.deepEqual([scene.announced(), scene.listing()], [[], scene.before], call)
    })
    await Promise.all(tried)
  })

  it('restores the other parts if one part stays, leaves that part as it is, and names only its changes', async t => {
    const scene = await makeSwitched(t)
    const [place = ''] = places(scene, 'plugins/b')
    const switched = listTree(place)
    failCalls(t, 'renameSync', place, { code: 'EIO' })
    await assert.rejects(scene.transaction.undo(), error => {
      assert.ok(error instanceof RollbackError)
      assert.doesNotMatch(error.message, /plugins\/[ac]/)
      assert.match(error.message, /was moved to plugins\/b; .*; plugins\/b was moved to /)
      return true
    })
    assert.deepEqual(listTree(place), switched)
    for (const id of ['a', 'c'])
      for (const file of ['main', 'data/db'])
        assert.equal(scene.listing()[`plugins/${id}/${file}`], scene.before[`plugins/${id}/${file}`])
    assert.deepEqual(
      scene.announced().map(({ nth }) => nth),
      [1, 1, 1],
    )
  })

  it('continues where it stopped once the cause is gone, although no undo could be recorded', async t => {
    const scene = await makeSwitched(t)
    const pending = scene.announced()
    const [place = ''] = places(scene, 'plugins/b')
    const unwritable = { ...scene.changeLog, journal: UNWRITABLE }
    await t.test('while one part stays', async own => {
      failCalls(own, 'renameSync', place, { code: 'EIO' })
      await assert.rejects(undoChanges(unwritable, [...pending]), { code: 'rollback_failed' })
    })
    assert.equal(isAnyMade(scene.root, pending), true)
    assert.equal(await undoChanges(unwritable, [...pending]), true)
    assert.deepEqual(scene.listing(), scene.before)
    assert.equal(isAnyMade(scene.root, pending), false)
  })

  it('does not count a rename as failed if only the sync after it fails', async t => {
    const scene = await makeSwitched(t)
    for (const path of places(scene, 'plugins', STAGING)) failCalls(t, 'openSync', path, { code: 'EIO', times: 1 })
    assert.equal(await scene.transaction.undo(), true)
    assert.deepEqual([scene.announced(), scene.listing()], [[], scene.before])
    assert.deepEqual(scene.transaction.unsynced, [])
  })

  it('leaves its changes to the next undo, although all is back, if nothing can be synced', async t => {
    const scene = await makeSwitched(t)
    const path = process.env['PATH']
    t.after(() => {
      process.env['PATH'] = path
    })
    process.env['PATH'] = '/nonexistent'
    const [plugins = ''] = places(scene, 'plugins')
    await t.test('while the disk is broken', async own => {
      failCalls(own, 'openSync', plugins, { code: 'EIO' })
      assert.equal(await scene.transaction.undo(), true)
    })
    assert.deepEqual(scene.listing(), scene.before)
    assert.match(scene.transaction.unsynced[0]?.message ?? '', /durable.*EIO/)
    assert.equal(scene.announced().length, 9)
    await scene.transaction.undo()
    assert.deepEqual([scene.announced(), scene.listing()], [[], scene.before])
  })

  it('leaves an older change to the next undo together with a newer one that cannot be synced', async t => {
    const scene = await makeSwitched(t)
    const path = process.env['PATH']
    t.after(() => {
      process.env['PATH'] = path
    })
    process.env['PATH'] = '/nonexistent'
    await t.test('while the disk is broken', async own => {
      for (const broken of places(scene, snapshotOf('b'), 'plugins/a/main')) failCalls(own, 'openSync', broken)
      assert.equal(await scene.transaction.undo(), true)
    })
    assert.deepEqual(scene.listing(), scene.before)
    assert.equal(scene.transaction.unsynced.length, 1)
    // The next run begins with what the journal says.
    assert.equal(await undoChanges(scene.changeLog, scene.announced()), true)
    assert.deepEqual([scene.announced(), scene.listing()], [[], scene.before])
  })

  it('removes a directory that the deployment has made, although the first attempt fails', async t => {
    const { root, transaction, listing } = await makeScene(t)
    const before = listing()
    await transaction.apply([{ type: 'make_directory', path: 'extensions' }])
    failCalls(t, 'rmdirSync', join(root, 'extensions'), { code: 'EIO', times: 1 })
    assert.equal(await transaction.undo(), false)
    assert.deepEqual(listing(), before)
  })
})

function recordsWithInodes(path: string): { record: string; seq: number; change?: AnnouncedChange['change'] }[] {
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n')
  return lines.map(line => JSON.parse(line))
}

const IDS = ['a', 'b', 'c']
const STAGING = `.hub-deploy/staging/${factsOf().deployment_id}`
const snapshotOf = (id: string): string => `.hub-deploy/snapshots/plugins/${id}/1-1.0.0`

/** The three moves of each part, announced together for all parts: old trees out, kept paths over, new trees in. */
const RECORDS: readonly (readonly PlannedChange[])[] = [
  IDS.map(id => ({ type: 'move', from: `plugins/${id}`, to: snapshotOf(id) })),
  IDS.map(id => ({ type: 'move', from: `${snapshotOf(id)}/data`, to: `${STAGING}/${id}/data` })),
  IDS.map(id => ({ type: 'move', from: `${STAGING}/${id}`, to: `plugins/${id}` })),
]

async function makeTogetherScene(t: TestContext) {
  const folder = temporaryDirectory(t)
  const root = join(folder, 'root')
  for (const id of IDS) {
    writeTree(root, { [`plugins/${id}/main`]: `old ${id}`, [`plugins/${id}/data/db`]: 'rows' })
    writeTree(root, { [`${STAGING}/${id}/main`]: `new ${id}` })
    mkdirSync(join(root, `.hub-deploy/snapshots/plugins/${id}`), { recursive: true })
  }
  const journalPath = join(folder, 'journal.jsonl')
  const begin = { facts: factsOf(), report_address: null, keep_paths: [] }
  const journal = await startJournal(journalPath, { record: 'begin', ...begin })
  t.after(() => journal.close())
  const changeLog = { root, journal, log: collectLog() }
  const announced = (): AnnouncedChange[] => pendingChanges(readJournal(journalPath) ?? [])
  const transaction = beginTransaction(changeLog)
  return { root, journalPath, changeLog, transaction, announced, listing: () => listTree(root) }
}

type TogetherScene = Awaited<ReturnType<typeof makeTogetherScene>>

/** A scene after all three moves of each part. `before` lists the files before the moves. */
async function makeSwitched(t: TestContext): Promise<TogetherScene & { before: ReturnType<typeof listTree> }> {
  const scene = await makeTogetherScene(t)
  const before = scene.listing()
  for (const changes of RECORDS) await scene.transaction.apply(changes)
  return { ...scene, before }
}

/**
 * Leaves the host as a power cut can: all changes of the first `whole` records are made, and the changes of the next
 * record only if their bits are set in `some`. Resolves to the announced changes.
 */
async function makeSome(
  scene: TogetherScene,
  { whole, some }: { whole: number; some: number },
): Promise<AnnouncedChange[]> {
  for (const changes of RECORDS.slice(0, whole)) await scene.transaction.apply(changes)
  const last = RECORDS[whole] ?? []
  if (last.length === 0) return scene.announced()
  await scene.transaction.apply(last)
  const pending = scene.announced()
  for (const { change, nth = 0 } of pending.slice(-last.length).reverse())
    if ((some & (1 << nth)) === 0 && change.type === 'move')
      await applyChanges(scene.root, [{ type: 'move', from: change.to, to: change.from }])
  return pending
}

const UNWRITABLE = { append: async () => undefined, close: () => {} }

describe('changes that are announced together', () => {
  it('have one record, and each undo names its own change', async t => {
    const { transaction, journalPath } = await makeSwitched(t)
    await transaction.undo()
    const found = (readJournal(journalPath) ?? []).slice(1).map(record => {
      if (record.record === 'undone') return [record.of, record.nth, record.was_made]
      return record.record === 'changes' ? record.changes.length : record.record
    })
    const undone = [4, 3, 2].flatMap(of => [2, 1, 0].map(nth => [of, nth, true]))
    assert.deepEqual(found, [3, 3, 3, ...undone])
  })

  for (const [whole, name] of ['old trees', 'kept paths', 'new trees'].entries()) {
    for (let some = 0; some < 1 << IDS.length; some++) {
      const made = IDS.filter((_, nth) => some & (1 << nth))
      it(`are fully undone after a power cut that kept only these moves of ${name}: ${made.join(', ') || 'none'}`, async t => {
        const scene = await makeTogetherScene(t)
        const before = scene.listing()
        const pending = await makeSome(scene, { whole, some })
        const isChanged = whole > 0 || some > 0
        assert.equal(isAnyMade(scene.root, pending), isChanged)
        // The first undo cannot be recorded, so the second undo does not know of the first.
        assert.equal(await undoChanges({ ...scene.changeLog, journal: UNWRITABLE }, [...pending]), isChanged)
        assert.deepEqual(scene.listing(), before)
        assert.equal(isAnyMade(scene.root, pending), false)
        assert.equal(await undoChanges(scene.changeLog, [...pending]), whole > 0)
        assert.deepEqual(scene.listing(), before)
        assert.deepEqual(scene.announced(), [])
      })
    }
  }

  it('are not undone again after the old version has replaced its files', async t => {
    const scene = await makeSwitched(t)
    const pending = scene.announced()
    await undoChanges({ ...scene.changeLog, journal: UNWRITABLE }, [...pending])
    for (const id of IDS) {
      rmSync(join(scene.root, `plugins/${id}/data`), { recursive: true })
      writeTree(scene.root, { [`plugins/${id}/data/db`]: 'newer rows' })
    }
    const now = scene.listing()
    assert.equal(await undoChanges(scene.changeLog, pending), true)
    assert.deepEqual(scene.listing(), now)
  })

  for (const removed of IDS) {
    it(`are undone, and all trees return, even if the old ${removed} removes its kept path meanwhile`, async t => {
      const { root, transaction, changeLog, announced, listing, journalPath } = await makeTogetherScene(t)
      const gone = `plugins/${removed}/data was removed or replaced by another process after the deployment began, and cannot be put back`
      const lost = `${snapshotOf(removed)}/data`
      const [trees = [], kept = []] = RECORDS
      await transaction.apply(trees)
      const [first] = kept
      const unlink = (change: PlannedChange) => {
        if (change === first && announced().length > trees.length) rmSync(join(root, lost), { recursive: true })
      }
      await assert.rejects(transaction.apply(kept, unlink), { code: 'step_failed' })
      assert.equal(await transaction.undo(), true)
      const found = IDS.map(id => [
        existsSync(join(root, `plugins/${id}/main`)),
        existsSync(join(root, `plugins/${id}/data/db`)),
      ])
      assert.deepEqual(
        found,
        IDS.map(id => [true, id !== removed]),
      )
      assert.deepEqual(announced(), [])
      assert.deepEqual(
        changeLog.log.lines.filter(line => line.startsWith('warning')),
        [`warning ${gone}.`],
      )
      assert.deepEqual(transaction.lost, [gone])
      assert.deepEqual(
        (readJournal(journalPath) ?? []).flatMap(record => (record.record === 'undone' ? (record.lost ?? []) : [])),
        [gone],
      )
      const now = listing()
      assert.equal(await undoChanges(changeLog, announced()), false)
      assert.deepEqual(listing(), now)
    })
  }

  it('are undone even if the new version has renamed a kept path', async t => {
    const { root, transaction, listing, before } = await makeSwitched(t)
    renameSync(join(root, 'plugins/b/data'), join(root, 'plugins/b/data-2'))
    assert.equal(await transaction.undo(), true)
    assert.deepEqual(listing(), before)
  })

  it('are not undone until a kept path that the new version may have moved is put back', async t => {
    const { root, transaction, listing, before } = await makeSwitched(t)
    renameSync(join(root, 'plugins/b/data'), join(root, 'elsewhere'))
    const [from, to] = [`${snapshotOf('b')}/data`, `${STAGING}/b/data`]
    await assert.rejects(transaction.undo(), {
      code: 'rollback_failed',
      message: new RegExp(`${from} was moved to ${to} .* at neither path.* put it back`),
    })
    assert.deepEqual(transaction.lost, [])
    renameSync(join(root, 'elsewhere'), join(root, to))
    assert.equal(await transaction.undo(), true)
    assert.deepEqual(listing(), before)
  })

  it('are undone, except that the move of a tree at neither path stays announced', async t => {
    const { root, transaction, announced } = await makeTogetherScene(t)
    await transaction.apply(RECORDS[0] ?? [])
    rmSync(join(root, snapshotOf('b')), { recursive: true })
    await assert.rejects(transaction.undo(), {
      code: 'rollback_failed',
      message: /Not undone: plugins\/b was moved to [^;]*\. Remove/,
    })
    assert.deepEqual(
      IDS.map(id => existsSync(join(root, `plugins/${id}/main`))),
      [true, false, true],
    )
    assert.deepEqual(
      announced().map(({ nth }) => nth),
      [1],
    )
  })

  it('are not undone if the new tree, and the kept paths in it, are lost', async t => {
    const { root, transaction } = await makeTogetherScene(t)
    for (const changes of RECORDS.slice(0, 2)) await transaction.apply(changes)
    rmSync(join(root, STAGING, 'b'), { recursive: true })
    await assert.rejects(transaction.undo(), { code: 'rollback_failed', message: /at neither path/ })
  })

  it('keep few directories open, however many kept paths move and however deep they are', async t => {
    const { root, transaction, listing } = await makeTogetherScene(t)
    const old = `${snapshotOf('a')}/var/lib/x`
    const paths = Array.from({ length: 120 }, (_, nth) => `${nth}/db`)
    writeTree(root, Object.fromEntries(paths.map(path => [`${old}/${path}`, 'rows'])))
    const staged = `${STAGING}/a/var/lib/x`
    for (const path of paths) mkdirSync(join(root, staged, path, '..'), { recursive: true })
    const before = listing()
    const open = (): number => readdirSync('/proc/self/fd').length
    const [first, counts] = [open(), [] as number[]]
    const moves = paths.map(path => ({ type: 'move', from: `${old}/${path}`, to: `${staged}/${path}` }) as const)
    await transaction.apply(moves, () => counts.push(open()))
    assert.ok(Math.max(...counts) - first <= 210, `${Math.max(...counts) - first} more descriptors were open`)
    assert.ok(paths.every(path => existsSync(join(root, staged, path))))
    assert.equal(open(), first)
    await transaction.undo()
    assert.deepEqual(listing(), before)
  })

  it('are not announced at all if one of them is impossible', async t => {
    const { transaction, announced, listing } = await makeTogetherScene(t)
    const before = listing()
    const gone: PlannedChange = { type: 'move', from: 'plugins/gone', to: snapshotOf('gone') }
    let reached: PlannedChange | undefined
    const reach = (change: PlannedChange) => {
      reached = change
    }
    const [first, ...others] = RECORDS[0] ?? []
    const planned = [first, gone, ...others].filter(change => change !== undefined)
    await assert.rejects(transaction.apply(planned, reach), { code: 'step_failed' })
    assert.equal(reached, gone)
    assert.deepEqual([announced(), listing()], [[], before])
    assert.equal(transaction.changed, false)
  })

  it('count as not announced if the record that announces them is torn', async t => {
    const { transaction, journalPath } = await makeTogetherScene(t)
    await transaction.apply(RECORDS[0] ?? [])
    const text = readFileSync(journalPath, 'utf8')
    const end = text.indexOf('\n', text.indexOf('"changes"'))
    for (const cut of [end - 1, end - 300, text.indexOf('{"seq":2') + 10]) {
      writeFileSync(journalPath, text.slice(0, cut) + ' '.repeat(text.length - cut))
      assert.deepEqual(
        readJournal(journalPath)?.map(({ record }) => record),
        ['begin'],
      )
    }
  })
})
