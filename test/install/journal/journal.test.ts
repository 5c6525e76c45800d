import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, statSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { createRandom } from '../../../bench/source-tree.ts'
import type { Change } from '../../../src/install/changes/change.ts'
import { buildEnd, type DeploymentEnd } from '../../../src/install/journal/facts.ts'
import { openJournal, removeJournal, startJournal } from '../../../src/install/journal/journal.ts'
import { formatLine, JournalDamage, parseJournalText } from '../../../src/install/journal/line.ts'
import { readJournal } from '../../../src/install/journal/read.ts'
import { type BeginRecord, type JournalRecord, pendingChanges } from '../../../src/install/journal/records.ts'
import { whyNoStrace } from '../../e2e/harness/strace.ts'
import { temporaryDirectory } from '../../folders.ts'
import { DEPLOYMENT_ID, factsOf, removedRowOf, rowOf } from '../prepared-host.ts'
import { journalText } from './journal-text.ts'

const AT = '2026-01-02T03:04:05.678Z'
const SNAPSHOT = '.hub-deploy/snapshots/plugins/x/1-1.0.0'
const MOVE: Change = { type: 'move', from: 'plugins/x', to: SNAPSHOT, ino: '7', times: '1 1' }
const BEGIN: BeginRecord = { record: 'begin', facts: factsOf(), report_address: null, keep_paths: ['data'] }
const STATE: JournalRecord = { record: 'state', state: 'fetching', at: AT }
const CHANGE: JournalRecord = { record: 'change', change: MOVE }
const UNDONE: JournalRecord = { record: 'undone', of: 3, was_made: true }

function pathIn(t: TestContext): string {
  return join(temporaryDirectory(t), 'journal.jsonl')
}

async function writeJournal(path: string, ...records: JournalRecord[]): Promise<void> {
  const journal = await startJournal(path, BEGIN)
  for (const record of records) await journal.append(record)
  journal.close()
}

/** Puts padding back into some of the sectors that were written after this position. */
function loseSectors(journal: Buffer, after: number, random: () => number): void {
  for (let at = after; at < journal.length; at += 512 - (at % 512))
    if (random() < 0.5) journal.fill(' ', at, at + 512 - (at % 512))
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

describe('startJournal', () => {
  it('keeps records in their order, in a file of mode 0600', async t => {
    const path = pathIn(t)
    await writeJournal(path, STATE, CHANGE)
    assert.deepEqual(readJournal(path), [BEGIN, STATE, CHANGE])
    assert.equal(statSync(path).mode & 0o777, 0o600)
  })

  it('numbers the records', async t => {
    const journal = await startJournal(pathIn(t), BEGIN)
    t.after(() => journal.close())
    assert.deepEqual([await journal.append(STATE), await journal.append(CHANGE)], [2, 3])
  })

  it('writes every record of an undo into reserved room', async t => {
    const path = pathIn(t)
    const journal = await startJournal(path, BEGIN)
    t.after(() => journal.close())
    let announced = 0
    for (const { size } = statSync(path); statSync(path).size === size; announced++) await journal.append(CHANGE)
    const { size, ino } = statSync(path)
    for (let index = 0; index < announced; index++) await journal.append({ ...UNDONE, of: index + 2 })
    for (let run = 0; run < 5; run++) await journal.append({ record: 'recovery', at: AT, by: DEPLOYMENT_ID })
    await journal.append(endThat(true))
    assert.deepEqual([statSync(path).size, statSync(path).ino], [size, ino])
    assert.deepEqual(pendingChanges(readJournal(path) ?? []), [])
    assert.equal(readJournal(path)?.length, 1 + 2 * announced + 5 + 1)
  })
})

describe('openJournal', () => {
  const line = formatLine(2, CHANGE)
  for (const torn of ['{', line.slice(0, 30), line.slice(0, -20), line.slice(0, -1)]) {
    it(`appends after the last whole record, over a torn one of ${torn.length} bytes`, async t => {
      const path = pathIn(t)
      writeFileSync(path, journalText([BEGIN], torn))
      const journal = openJournal(path)
      await journal.append(STATE)
      journal.close()
      assert.equal(readFileSync(path, 'utf8'), journalText([BEGIN, STATE]))
    })
  }

  it('continues after the records of an earlier process', async t => {
    const path = pathIn(t)
    await writeJournal(path)
    const journal = openJournal(path)
    await journal.append(CHANGE)
    journal.close()
    assert.deepEqual(readJournal(path), [BEGIN, CHANGE])
  })
})

describe('readJournal', () => {
  it('returns undefined only for a missing journal', t => {
    assert.equal(readJournal(pathIn(t)), undefined)
  })

  it('reads a commit, with and without a removed part', async t => {
    const path = pathIn(t)
    const commit: JournalRecord = {
      record: 'commit',
      at: AT,
      rows: [rowOf()],
      removed: [],
      discard: ['.hub-deploy/snapshots/plugins/greeter/1-1.0.0'],
    }
    const removal = { ...commit, removed: [removedRowOf()] }
    await writeJournal(path, commit, removal)
    assert.deepEqual(readJournal(path)?.slice(1), [commit, removal])
  })

  it('reads every outcome of a deployment', async t => {
    const path = pathIn(t)
    for (const outcome of ['success', 'failed', 'rolled_back', 'interrupted', 'inconsistent'] as const) {
      const end: JournalRecord = { record: 'end', end: buildEnd(new Date(), { outcome }) }
      writeFileSync(path, journalText([BEGIN, end]))
      assert.deepEqual(readJournal(path), [BEGIN, end])
    }
  })

  it('reads a last line that is cut at any byte as torn when padding follows', t => {
    const path = pathIn(t)
    const line = formatLine(2, CHANGE)
    for (let bytes = 0; bytes < line.length; bytes++) {
      writeFileSync(path, journalText([BEGIN], line.slice(0, bytes)))
      assert.deepEqual(readJournal(path), [BEGIN])
    }
  })

  it('reads a record as torn wherever it is cut, even within texts with brackets and quotes', t => {
    const path = pathIn(t)
    for (const id of ['a}}', '"}}', '\\', '[{']) {
      const line = formatLine(2, { record: 'step', id, action: 'restart', status: 'done', duration_ms: 1, error: null })
      for (let bytes = 0; bytes < line.length; bytes++) {
        writeFileSync(path, journalText([BEGIN], line.slice(0, bytes)))
        assert.deepEqual(readJournal(path), [BEGIN])
      }
    }
  })

  it('ends at the first record with sectors that a power cut left unwritten, and is continued there', async t => {
    const path = pathIn(t)
    const records = [BEGIN, CHANGE, ...Array.from({ length: 12 }, () => STATE), CHANGE]
    const random = createRandom(7)
    for (let cut = 0; cut < 500; cut++) {
      // The first change is on the disk before any later record is written.
      const durable = 2 + Math.floor(random() * (records.length - 2))
      const bytes = Buffer.from(journalText(records))
      const synced = journalText(records.slice(0, durable)).trimEnd().length + 1
      let found: JournalRecord[] = []
      // The second time, the write that erases the torn records is torn too.
      for (let time = 0; time < 2; time++) {
        loseSectors(bytes, synced, random)
        writeFileSync(path, bytes)
        found = readJournal(path) ?? []
        assert.ok(found.length >= durable)
        assert.deepEqual(found, records.slice(0, found.length))
      }
      const journal = openJournal(path)
      await journal.append(STATE)
      journal.close()
      assert.equal(
        readFileSync(path, 'utf8').trimEnd(),
        journalText([...records.slice(0, found.length), STATE]).trimEnd(),
      )
    }
  })

  it('refuses a lost sector before a durable record that is followed by others', t => {
    const path = pathIn(t)
    const long: JournalRecord = { ...STATE, state: 's'.repeat(900) }
    for (const behind of [
      [CHANGE, STATE],
      [CHANGE, CHANGE],
      [STATE, CHANGE, STATE],
    ]) {
      const bytes = Buffer.from(journalText([BEGIN, long, ...behind]))
      const lost = Math.ceil((bytes.indexOf('sss') + 1) / 512) * 512
      bytes.fill(' ', lost, lost + 512)
      writeFileSync(path, bytes)
      assert.throws(() => readJournal(path), /its line 2 was written, and has been damaged since/)
    }
  })

  const whole = journalText([BEGIN, STATE, CHANGE])
  const lines = whole.trimEnd().length
  const commit = { record: 'commit', at: AT, rows: [rowOf()], removed: [], discard: [] }
  const damaged: Record<string, string | Buffer> = {
    'an empty file': '',
    'a file of NUL bytes': Buffer.alloc(whole.length),
    'a first page of NUL bytes': Buffer.concat([Buffer.alloc(4096), Buffer.from(whole.slice(4096))]),
    'NUL bytes at the end': Buffer.concat([Buffer.from(whole.slice(0, lines + 1)), Buffer.alloc(500)]),
    'one NUL byte in the padding': `${whole.slice(0, -9)}\0        `,
    'a torn record that contains NUL': journalText([BEGIN], `${formatLine(2, STATE).slice(0, 40)}\0`),
    'a journal that is cut in half': whole.slice(0, lines / 2),
    'a journal that is cut after a whole line': whole.slice(0, lines + 1),
    'a lost first line': whole.slice(whole.indexOf('\n') + 1),
    'a lost second line': [whole.split('\n')[0], ...whole.split('\n').slice(2)].join('\n'),
    'a repeated line': journalText([BEGIN]).trimEnd() + `\n${formatLine(1, BEGIN)}`.padEnd(100),
    'padding without a record': ' '.repeat(whole.length),
    'a torn first record': journalText([], formatLine(1, BEGIN).slice(0, 40)),
    'a changed letter': whole.replace('plugins/x', 'plugins/y'),
    'a changed letter before sectors that were not written': journalText([BEGIN, CHANGE])
      .replace('plugins/x', 'plugins/y')
      .replace(/ {2000}$/, `{}${' '.repeat(1998)}`),
    'an unwritten sector and a NUL byte': journalText([BEGIN], '{"seq":2').replace(/ {2000}$/, `\0${' '.repeat(1999)}`),
    'a first sector that was not written': whole.replace(/^.{512}/s, ' '.repeat(512)),
    'a torn record of another number': journalText([BEGIN], formatLine(7, CHANGE).slice(0, -20)),
    'a last line that is not a torn record': journalText([BEGIN], 'free text'),
    'more text after a whole record': journalText([BEGIN], `${formatLine(2, STATE).trimEnd()}{`),
    'records without numbers and checksums': `${JSON.stringify(BEGIN)}\n${JSON.stringify(STATE)}\n`,
    'an unknown record': journalText([BEGIN, { record: 'else' }]),
    'a journal that does not begin with a deployment': journalText([STATE, CHANGE]),
    'a journal that begins twice': journalText([BEGIN, BEGIN]),
    'a commit that discards the root itself': journalText([BEGIN, { ...commit, discard: ['.'] }]),
    'a commit that discards another plugin': journalText([BEGIN, { ...commit, discard: ['plugins/other'] }]),
    'a commit that discards all snapshots': journalText([BEGIN, { ...commit, discard: ['.hub-deploy/snapshots'] }]),
    'a commit of another slug': journalText([BEGIN, { ...commit, rows: [rowOf({ slug: 'other' })] }]),
    'a commit of a project': journalText([BEGIN, { ...commit, rows: [rowOf({ contract: 'project' })] }]),
    'a removal of another slug': journalText([BEGIN, { ...commit, removed: [removedRowOf({ slug: 'other' })] }]),
    'an undo of a record that is not a change': journalText([BEGIN, STATE, { ...UNDONE, of: 2 }]),
    'a time that is a path': journalText([BEGIN, { record: 'facts', facts: { started_at: '../../x' } }]),
    'a kept path that leads out of its part': journalText([{ ...BEGIN, keep_paths: ['../other'] }]),
    'a slug that is a path': journalText([BEGIN, { record: 'facts', facts: { slug: '../x' } }]),
  }
  for (const [name, text] of Object.entries(damaged)) {
    it(`refuses ${name}`, t => {
      const path = pathIn(t)
      writeFileSync(path, text)
      assert.throws(() => readJournal(path), JournalDamage)
      assert.throws(() => openJournal(path), JournalDamage)
    })
  }

  for (const name of ['padding without a record', 'a torn first record'])
    it(`finds no record at all in ${name}`, () => {
      assert.throws(() => parseJournalText(Buffer.from(damaged[name] ?? '')), /it contains no complete record/)
    })

  const EVERY_KIND: Record<JournalRecord['record'], JournalRecord> = {
    begin: BEGIN,
    facts: { record: 'facts', facts: { version: '2.0.0' } },
    state: STATE,
    step: { record: 'step', id: 'up', action: 'restart', status: 'done', duration_ms: 1, error: null },
    change: CHANGE,
    changes: { record: 'changes', changes: [MOVE, { type: 'make_directory', path: 'plugins' }] },
    service: { record: 'service', part: 'greeter', was_running: true },
    undone: { record: 'undone', of: 2, was_made: true },
    commit: { record: 'commit', at: AT, rows: [rowOf()], removed: [], discard: [] },
    end: endThat(true),
    reported: { record: 'reported', attempts: 1 },
    recovery: { record: 'recovery', at: AT, by: DEPLOYMENT_ID },
  }
  const PLANTED = {
    command: ['/bin/sh', '-c', 'id'],
    service: { supervisor: 'systemd', scope: 'system', unit: 'sshd.service' },
    checks: [{ id: 'greeter', check: { probe: { type: 'command', command: ['/bin/sh'] } } }],
    kubeconfig: '/srv/app/kubeconfig',
  }
  /** The fields of a record that contain records of their own, which drop keys that they do not know. */
  const INNER = ['facts', 'file', 'change', 'end'] as const
  for (const [kind, record] of Object.entries(EVERY_KIND)) {
    const before = kind === 'begin' ? [] : kind === 'undone' ? [BEGIN, CHANGE] : [BEGIN]
    for (const [key, value] of Object.entries(PLANTED))
      it(`refuses a record of the kind ${kind} with the key ${key}, which says what to execute`, t => {
        const path = pathIn(t)
        writeFileSync(path, journalText([...before, record]))
        assert.deepEqual(readJournal(path), [...before, record])
        writeFileSync(path, journalText([...before, { ...record, [key]: value }]))
        assert.throws(() => readJournal(path), JournalDamage)
      })
    for (const inner of INNER.filter(name => name in record))
      it(`keeps nothing to execute from inside the ${inner} of a record of the kind ${kind}`, t => {
        const path = pathIn(t)
        const content = (record as unknown as Record<string, object>)[inner]
        writeFileSync(path, journalText([...before, { ...record, [inner]: { ...content, ...PLANTED } }]))
        assert.deepEqual(readJournal(path), [...before, record])
      })
  }

  it('refuses the records in which earlier journals said what to execute', t => {
    const path = pathIn(t)
    const change = { service: PLANTED.service, action: 'restart', was_running: true, replicas: null }
    for (const record of [
      { record: 'service', change },
      { record: 'service', part: 'greeter', was_running: true, replicas: 1000 },
      { record: 'service', part: '../sshd', was_running: true },
      { record: 'healthchecks', checks: PLANTED.checks },
    ]) {
      writeFileSync(path, journalText([BEGIN, record]))
      assert.throws(() => readJournal(path), JournalDamage)
    }
  })

  it('never loses a record to a cut, wherever the cut is', t => {
    const path = pathIn(t)
    for (let bytes = 0; bytes <= lines; bytes += 7) {
      writeFileSync(path, whole)
      truncateSync(path, bytes)
      assert.throws(() => readJournal(path), JournalDamage)
    }
  })

  it('never reads a file that is too large for a journal', t => {
    const path = pathIn(t)
    writeFileSync(path, whole)
    truncateSync(path, 3 * 1024 ** 3)
    assert.throws(() => readJournal(path), JournalDamage)
  })

  it('refuses a time that does not exist', t => {
    const path = pathIn(t)
    writeFileSync(path, journalText([BEGIN, { ...STATE, at: '2026-99-01T00:00:00.000Z' }]))
    assert.throws(() => readJournal(path), /its line 2 has no valid at/)
  })

  it('throws on a directory and on a symlink', t => {
    const path = pathIn(t)
    mkdirSync(path)
    assert.throws(() => readJournal(path), { code: 'EISDIR' })
    writeFileSync(`${path}.other`, whole)
    symlinkSync(`${path}.other`, `${path}.link`)
    assert.throws(() => readJournal(`${path}.link`), { code: 'ELOOP' })
  })
})

describe('pendingChanges', () => {
  it('are those announced and not undone yet, oldest first, whichever one was undone', () => {
    const second: Change = { type: 'make_directory', path: 'extensions' }
    const records: JournalRecord[] = [BEGIN, CHANGE, { record: 'change', change: second }, STATE]
    assert.deepEqual(pendingChanges([...records, { ...UNDONE, of: 3 }]), [{ seq: 2, change: MOVE, wasMade: true }])
    assert.deepEqual(pendingChanges([...records, { ...UNDONE, of: 2 }]), [{ seq: 3, change: second }])
    assert.deepEqual(pendingChanges([BEGIN]), [])
  })

  it('contain no newer change of the same tree: it was undone first, even if that could not be recorded', () => {
    const staged = `.hub-deploy/staging/${DEPLOYMENT_ID}/tree`
    const [kept, into] = [
      { from: `${SNAPSHOT}/data`, to: `${staged}/data` },
      { from: staged, to: 'plugins/x' },
    ].map(paths => ({ record: 'change' as const, change: { ...MOVE, ...paths } }))
    const other = { ...MOVE, from: 'plugins/y', to: SNAPSHOT.replace('/x/', '/y/') }
    const records = [BEGIN, CHANGE, kept, into, { record: 'change', change: other }] as JournalRecord[]
    assert.deepEqual(pendingChanges([...records, { ...UNDONE, of: 2 }]), [{ seq: 5, change: other }])
  })

  it('are empty after an end that restored everything, even if not every undo could be recorded', () => {
    const failed: JournalRecord = { record: 'end', end: buildEnd(new Date(), { outcome: 'failed' }) }
    for (const end of [endThat(true), failed]) assert.deepEqual(pendingChanges([BEGIN, CHANGE, end]), [])
  })

  it('remain after an end that could not restore everything', () => {
    const second: Change = { type: 'make_directory', path: 'plugins' }
    const left = [
      { seq: 2, change: MOVE },
      { seq: 3, change: second },
    ]
    const records: JournalRecord[] = [BEGIN, CHANGE, { record: 'change', change: second }, endThat(false)]
    assert.deepEqual(pendingChanges(records), left)
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

describe('the copy that a growing journal moves to', () => {
  it('is durable before it takes the name of the journal, and keeps that name after a power cut', t => {
    const path = pathIn(t)
    const { stdout, stderr } = runGrowth('observe-growth.ts', path)
    assert.equal(stderr, '')
    const calls = ['sync the copy', 'rename the copy', `sync ${dirname(path)}`]
    // The first time is the start of the journal.
    assert.deepEqual(stdout.trimEnd().split('\n'), [...calls, ...calls])
  })
})

describe('a journal that grows', { skip: whyNoStrace() }, () => {
  // The journal is opened when it is started, read, continued and copied. A fifth open would open the copy.
  for (const failing of ['?open,openat:error=EMFILE:when=5+', '?rename,renameat,renameat2:error=EIO:when=2+'])
    it(`keeps its records under its name when the system refuses ${failing}`, t => {
      const path = pathIn(t)
      const { stderr } = runGrowth('grow-journal.ts', path, [
        ...['strace', '-f', '-qq', '-o', '/dev/null'],
        ...['-P', path, '-e', `inject=${failing}`],
      ])
      assert.equal(stderr, '')
      assert.equal(readJournal(path)?.at(-1)?.record, 'undone')
    })
})

/** Runs a program of this folder with the path of a journal, as the last arguments of `through`. */
function runGrowth(program: string, path: string, through: readonly string[] = []) {
  const [command = '', ...args] = [...through, process.execPath, join(import.meta.dirname, program), path]
  return spawnSync(command, args, { encoding: 'utf8' })
}
