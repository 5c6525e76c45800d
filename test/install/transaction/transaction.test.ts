import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { RollbackError } from '../../../src/core/errors.ts'
import { type PlannedChange, undoChange } from '../../../src/install/transaction/changes/change.ts'
import type { AnnouncedChange } from '../../../src/install/transaction/journal/announcement.ts'
import { startJournal } from '../../../src/install/transaction/journal/journal.ts'
import { beginTransaction, type Transaction } from '../../../src/install/transaction/transaction.ts'
import { type ChangeLog, isAnyMade, undoChanges } from '../../../src/install/transaction/undo.ts'
import { listTree } from '../archive/directory-listing.ts'
import { collectLog } from '../collected-log.ts'
import { factsOf, rowOf } from '../prepared-host.ts'
import { temporaryDirectory, writeTree } from '../temporary-directory.ts'

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
      assert.equal(await transaction.rollback(), made > 0)
      assert.deepEqual(listing(), before)
      assert.equal(await transaction.rollback(), false)
      assert.deepEqual(listing(), before)
    })
  }

  it('announces each change before making it, and rolls back the newest first', async t => {
    const { transaction, journalPath } = await makeScene(t)
    for (const change of UPDATE) await transaction.apply([change])
    await transaction.rollback()
    assert.deepEqual(
      recordsOf(journalPath).map(({ record, change, of }) => [record, change ?? of]),
      [...UPDATE.map(change => ['change', change]), ...[5, 4, 3, 2].map(seq => ['undone', seq])],
    )
  })

  it('announces a change even if the file system then refuses it', async t => {
    const { transaction, journalPath } = await makeScene(t)
    const change: PlannedChange = { type: 'move', from: 'plugins/x', to: 'no/such/folder' }
    await assert.rejects(transaction.apply([change]))
    assert.deepEqual(recordsOf(journalPath), [{ record: 'change', change }])
    assert.equal(await transaction.rollback(), false)
  })

  for (const [name, change] of [
    ['its target is taken', { type: 'move', from: 'plugins/x', to: 'aside' }],
    ['its source is missing', { type: 'move', from: 'plugins/gone', to: 'aside/gone' }],
    ['its directory exists', { type: 'make_directory', path: 'aside' }],
  ] as const) {
    it(`does not announce a change that is impossible because ${name}`, async t => {
      const { transaction, journalPath, listing } = await makeScene(t)
      const before = listing()
      await assert.rejects(transaction.apply([change]))
      assert.deepEqual(recordsOf(journalPath), [])
      await transaction.rollback()
      assert.deepEqual(listing(), before)
    })
  }

  it('does not count a new directory as a change to the running version', async t => {
    const { transaction } = await makeScene(t)
    await transaction.apply([{ type: 'make_directory', path: 'extensions' }])
    assert.equal(transaction.changed, false)
    assert.equal(await transaction.rollback(), false)
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

function recordsWithInodes(path: string): { record: string; seq: number; change?: AnnouncedChange['change'] }[] {
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n')
  return lines.map(line => JSON.parse(line))
}
