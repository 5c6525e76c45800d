import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { RollbackError } from '../../../src/core/errors.ts'
import type { Change } from '../../../src/install/transaction/change.ts'
import { openJournal } from '../../../src/install/transaction/journal.ts'
import {
  beginTransaction,
  type ChangeLog,
  type Transaction,
  undoChanges,
} from '../../../src/install/transaction/transaction.ts'
import { listTree } from '../archive/directory-listing.ts'
import { collectLog } from '../collected-log.ts'
import { rowOf } from '../prepared-host.ts'
import { temporaryDirectory, writeTree } from '../temporary-directory.ts'

/** An update as the steps make it: old tree out, kept path over, new tree in, settings written. */
const UPDATE: readonly Change[] = [
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
  const journal = await openJournal(journalPath)
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

/** Without the inodes, which differ each time. */
function recordsOf(path: string): { record: string; change?: Change }[] {
  return readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line, (key, value) => (key === 'ino' ? undefined : value)))
}

describe('Transaction', () => {
  for (let made = 0; made <= UPDATE.length; made++) {
    it(`rolls ${made} of ${UPDATE.length} changes back to the exact tree, twice`, async t => {
      const { transaction, listing } = await makeScene(t)
      const before = listing()
      for (const change of UPDATE.slice(0, made)) await transaction.apply(change)
      assert.equal(transaction.changed, made > 0)
      assert.equal(await transaction.rollback(), made > 0)
      assert.deepEqual(listing(), before)
      assert.equal(await transaction.rollback(), false)
      assert.deepEqual(listing(), before)
    })
  }

  it('announces each change before it makes it, and rolls back newest first', async t => {
    const { transaction, journalPath } = await makeScene(t)
    for (const change of UPDATE) await transaction.apply(change)
    await transaction.rollback()
    assert.deepEqual(
      recordsOf(journalPath).map(({ record, change }) => [record, change]),
      [...UPDATE.map(change => ['change', change]), ...UPDATE.toReversed().map(change => ['undone', change])],
    )
  })

  it('has announced a change that the file system then refuses', async t => {
    const { transaction, journalPath } = await makeScene(t)
    const change: Change = { type: 'move', from: 'plugins/x', to: 'no/such/folder' }
    await assert.rejects(transaction.apply(change))
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
      await assert.rejects(transaction.apply(change))
      assert.equal(readFileSync(journalPath, 'utf8'), '')
      await transaction.rollback()
      assert.deepEqual(listing(), before)
    })
  }

  it('does not count a made directory as a change of what the host runs', async t => {
    const { transaction } = await makeScene(t)
    await transaction.apply({ type: 'make_directory', path: 'extensions' })
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
  it('stops at the first that cannot be undone, names the rest, and continues once the cause is gone', async t => {
    const { root, transaction, changeLog, listing } = await makeScene(t)
    const before = listing()
    for (const change of UPDATE) await transaction.apply(change)
    renameSync(join(root, 'plugins/x/data'), join(root, 'elsewhere'))
    const pending = [...UPDATE]
    await assert.rejects(undoChanges(changeLog, pending), error => {
      assert.ok(error instanceof RollbackError)
      assert.equal(error.code, 'rollback_failed')
      assert.match(error.message, /plugins\/x was moved to aside\/x/)
      assert.doesNotMatch(error.message, /plugins\/x\.env was created/)
      return true
    })
    renameSync(join(root, 'elsewhere'), join(root, 'staged/x/data'))
    assert.deepEqual(pending, UPDATE.slice(0, 2))
    assert.equal(await undoChanges(changeLog, pending), true)
    assert.deepEqual(listing(), before)
  })
})
