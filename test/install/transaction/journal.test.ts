import assert from 'node:assert/strict'
import { appendFileSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import type { DeploymentEnd } from '../../../src/install/transaction/end.ts'
import {
  type JournalRecord,
  openJournal,
  pendingChanges,
  readJournal,
  removeJournal,
} from '../../../src/install/transaction/journal.ts'
import { factsOf, removedRowOf, rowOf } from '../prepared-host.ts'
import { temporaryDirectory } from '../temporary-directory.ts'

const BEGIN: JournalRecord = { record: 'begin', facts: factsOf(), report_address: null, keep_paths: ['data'] }
const STATE: JournalRecord = { record: 'state', state: 'fetching', at: '2026-01-02T03:04:05.678Z' }
const CHANGE: JournalRecord = { record: 'change', change: { type: 'move', from: 'plugins/x', to: 'aside/x' } }

function pathIn(t: Parameters<typeof temporaryDirectory>[0]): string {
  return join(temporaryDirectory(t), 'journal.jsonl')
}

function textOf(...records: unknown[]): string {
  return records.map(record => `${JSON.stringify(record)}\n`).join('')
}

function endThat(restored: boolean): JournalRecord {
  const end: DeploymentEnd = {
    outcome: restored ? 'rolled_back' : 'inconsistent',
    changed: !restored,
    completed_at: '2026-01-02T03:04:07.000Z',
    error: null,
    rollback: { restored, problems: [], verified: null, healthy: null },
  }
  return { record: 'end', end }
}

describe('openJournal', () => {
  it('keeps records in their order, in a file of mode 0600', async t => {
    const path = pathIn(t)
    const journal = await openJournal(path)
    for (const record of [BEGIN, STATE, CHANGE]) await journal.append(record)
    journal.close()
    assert.deepEqual(readJournal(path), [BEGIN, STATE, CHANGE])
    assert.equal(statSync(path).mode & 0o777, 0o600)
  })

  for (const torn of ['{', '{"record":"change","change":{"type":"mo', JSON.stringify(CHANGE)]) {
    it(`appends after the last whole record, over the torn ${torn.slice(0, 12)}`, async t => {
      const path = pathIn(t)
      writeFileSync(path, `${textOf(BEGIN)}${torn}`)
      const journal = await openJournal(path)
      await journal.append(STATE)
      journal.close()
      assert.equal(readFileSync(path, 'utf8'), textOf(BEGIN, STATE))
    })
  }

  it('continues after what an earlier process wrote', async t => {
    const path = pathIn(t)
    for (const record of [BEGIN, CHANGE]) {
      const journal = await openJournal(path)
      await journal.append(record)
      journal.close()
    }
    assert.deepEqual(readJournal(path), [BEGIN, CHANGE])
  })
})

describe('readJournal', () => {
  it('returns undefined for a missing journal, an empty one and one whose first record is torn', t => {
    const path = pathIn(t)
    assert.equal(readJournal(path), undefined)
    for (const text of ['', '{"record":"begin"', JSON.stringify(BEGIN)]) {
      writeFileSync(path, text)
      assert.equal(readJournal(path), undefined)
    }
  })

  it('reads a commit of the previous version, and one that removes a part', t => {
    const path = pathIn(t)
    const before = { record: 'commit', at: 'x', rows: [rowOf()], discard: [] } as const
    const now = { ...before, removed: [removedRowOf()] }
    writeFileSync(path, textOf(BEGIN, before, now))
    assert.deepEqual(readJournal(path)?.slice(1), [before, now])
  })

  it('leaves out a torn last line', t => {
    const path = pathIn(t)
    writeFileSync(path, textOf(BEGIN, STATE))
    appendFileSync(path, JSON.stringify(CHANGE))
    assert.deepEqual(readJournal(path), [BEGIN, STATE])
  })

  it('reads a cut at every byte of its last line as torn', t => {
    const path = pathIn(t)
    const line = textOf(CHANGE)
    for (let bytes = 0; bytes < line.length; bytes++) {
      writeFileSync(path, textOf(BEGIN) + line.slice(0, bytes))
      assert.deepEqual(readJournal(path), [BEGIN])
    }
  })

  const commit = { record: 'commit', at: 'x', rows: [rowOf()] }
  const damaged = {
    'a line that is no JSON': `${textOf(BEGIN)}{\n${textOf(STATE)}`,
    'a last whole line that is no JSON': `${textOf(BEGIN)}{\n`,
    'an empty line': `${textOf(BEGIN)}\n${textOf(STATE)}`,
    'an unknown record': textOf(BEGIN, { record: 'else' }),
    'a journal that does not begin': textOf(STATE, CHANGE),
    'a change above the root': textOf(BEGIN, { record: 'change', change: { type: 'make_directory', path: '../x' } }),
    'a move from an absolute path': textOf(BEGIN, {
      record: 'change',
      change: { type: 'move', from: '/etc', to: 'x' },
    }),
    'a commit that discards the root itself': textOf(BEGIN, { ...commit, discard: ['.'] }),
    'a commit that discards what is above the root': textOf(BEGIN, { ...commit, discard: ['a/../../x'] }),
  }
  for (const [name, text] of Object.entries(damaged)) {
    it(`throws on ${name}`, t => {
      const path = pathIn(t)
      writeFileSync(path, text)
      assert.throws(() => readJournal(path))
    })
  }
})

describe('pendingChanges', () => {
  it('are those announced and not undone yet, oldest first', () => {
    const second = { type: 'make_directory', path: 'plugins' } as const
    const records: JournalRecord[] = [
      BEGIN,
      CHANGE,
      { record: 'change', change: second },
      STATE,
      { record: 'undone', change: second, was_made: false },
    ]
    assert.deepEqual(pendingChanges(records), [CHANGE.record === 'change' && CHANGE.change])
    assert.deepEqual(pendingChanges([BEGIN]), [])
  })

  it('are none after an end that restored everything, though there was no room to record each undo', () => {
    assert.deepEqual(pendingChanges([CHANGE, endThat(true)]), [])
  })

  it('remain after an end that could not restore everything', () => {
    assert.deepEqual(pendingChanges([CHANGE, endThat(false)]), [CHANGE.record === 'change' && CHANGE.change])
  })
})

describe('removeJournal', () => {
  it('succeeds any number of times', async t => {
    const path = pathIn(t)
    writeFileSync(path, '')
    await removeJournal(path)
    await removeJournal(path)
    assert.ok(!existsSync(path))
  })
})
