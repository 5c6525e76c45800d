import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import {
  holdHostRecord,
  readHostRecord,
  recordDiscarded,
  recordInstalled,
  recordPending,
  releaseHostRecord,
} from '../../../../src/install/host/installed/host-record.ts'
import { fileOf, type HostRecord, recordOf } from '../../../../src/install/host/installed/record-file.ts'
import { restoreRecord } from '../../../../src/install/host/installed/restore-record.ts'
import type { Layout } from '../../../../src/install/host/layout.ts'
import { collectLog } from '../../collected-log.ts'
import { failOpen } from '../../failing-open.ts'
import { prepareTemporaryHost, removedRowOf, rowOf, snapshotOf } from '../../prepared-host.ts'

const OTHER = rowOf({ id: 'other', slug: 'other' })
const SNAPSHOT = '.hub-deploy/snapshots/plugins/other/1-1.0.0'
const COMMIT = {
  rows: [rowOf({ version: '3.0.0', snapshots: [snapshotOf('1-2.0.0')] })],
  removed: [removedRowOf({ id: 'third', snapshots: [snapshotOf('1-1.0.0')] })],
  discard: ['.hub-deploy/snapshots/plugins/greeter/1-1.0.0'],
}

interface Scene {
  readonly layout: Layout
  /** The host record as the run's journal contains it. */
  readonly known: HostRecord
  readonly text: string
}

/** A host with two installed plugins, and its record as a run has found it. */
async function openScene(t: TestContext): Promise<Scene> {
  const layout = await prepareTemporaryHost(t)
  await recordInstalled(layout, { rows: [rowOf(), OTHER], removed: [] })
  await recordPending(layout, ({ id }) => id === 'other')
  await recordDiscarded(layout, [SNAPSHOT])
  const known = recordOf(JSON.parse(JSON.stringify(fileOf(readHostRecord(layout)))))
  return { layout, known, text: readFileSync(layout.installed, 'utf8') }
}

function setAside({ snapshots }: Layout): string[] {
  return readdirSync(join(snapshots, 'set-aside'))
}

describe('restoreRecord', () => {
  const damages: Record<string, (path: string) => void> = {
    'is not JSON': path => writeFileSync(path, '{'),
    'is empty': path => writeFileSync(path, ''),
    'has no rows': path => writeFileSync(path, '{"schema":1,"installed":[]}'),
    'has lost a part': path => writeFileSync(path, JSON.stringify({ schema: 1, installed: [rowOf()] })),
    'names another version': path =>
      writeFileSync(path, JSON.stringify({ schema: 1, installed: [rowOf({ version: '1.0.0' }), OTHER] })),
    'is a directory': path => {
      rmSync(path)
      mkdirSync(path)
    },
    'is a symlink': path => {
      rmSync(path)
      symlinkSync('/dev/null', path)
    },
  }
  for (const [damage, make] of Object.entries(damages)) {
    it(`sets aside a record that ${damage}, and writes the one that the run had found, with every part`, async t => {
      const { layout, known, text } = await openScene(t)
      make(layout.installed)
      const log = collectLog()
      await restoreRecord({ layout, log }, { record: known })
      assert.equal(readFileSync(layout.installed, 'utf8'), text)
      const [aside = '', ...others] = setAside(layout)
      assert.deepEqual([aside.endsWith('-installed.json'), others], [true, []])
      assert.match(log.lines.join('\n'), new RegExp(`changed ${layout.installed} .*${aside}`))
    })
  }

  it('does not set aside a record that cannot be opened now', async t => {
    const { layout, known, text } = await openScene(t)
    failOpen(t, layout.installed, { times: 1 })
    await assert.rejects(restoreRecord({ layout, log: collectLog() }, { record: known }), { code: 'step_failed' })
    assert.equal(readFileSync(layout.installed, 'utf8'), text)
    assert.ok(!existsSync(join(layout.snapshots, 'set-aside')))
  })

  it('writes a record that was removed', async t => {
    const { layout, known, text } = await openScene(t)
    rmSync(layout.installed)
    const log = collectLog()
    await restoreRecord({ layout, log }, { record: known })
    assert.equal(readFileSync(layout.installed, 'utf8'), text)
    assert.match(log.lines.join('\n'), /removed .*installed\.json/)
  })

  const changes: Record<string, (layout: Layout) => Promise<void>> = {
    'is as the run found it': async () => {},
    'no longer lists a snapshot to remove': layout => recordDiscarded(layout, []),
    'lists a snapshot to remove that the run has discarded': layout =>
      recordDiscarded(layout, [SNAPSHOT, ...COMMIT.discard]),
    'says that a service is no longer pending': layout => recordPending(layout, () => false),
    'says that a service is pending': layout => recordPending(layout, () => true),
    'already contains the commit': layout => recordInstalled(layout, COMMIT),
  }
  for (const [name, change] of Object.entries(changes)) {
    it(`leaves alone a record that ${name}`, async t => {
      const { layout, known } = await openScene(t)
      await change(layout)
      const text = readFileSync(layout.installed, 'utf8')
      const log = collectLog()
      await restoreRecord({ layout, log }, { record: known }, COMMIT)
      assert.deepEqual([readFileSync(layout.installed, 'utf8'), log.lines], [text, []])
    })
  }

  const additions: Record<string, (layout: Layout) => Promise<void>> = {
    'lists a snapshot to remove that is the old version': layout =>
      recordDiscarded(layout, [SNAPSHOT, '.hub-deploy/snapshots/plugins/greeter/1-2.0.0']),
  }
  for (const [name, change] of Object.entries(additions)) {
    it(`sets aside a record that ${name}`, async t => {
      const { layout, known, text } = await openScene(t)
      await change(layout)
      await restoreRecord({ layout, log: collectLog() }, { record: known }, COMMIT)
      assert.deepEqual([readFileSync(layout.installed, 'utf8'), setAside(layout).length], [text, 1])
    })
  }

  it('does not keep a change that the run has not committed', async t => {
    const { layout, known, text } = await openScene(t)
    await recordInstalled(layout, COMMIT)
    await restoreRecord({ layout, log: collectLog() }, { record: known })
    assert.equal(readFileSync(layout.installed, 'utf8'), text)
  })

  it('leaves the existing file in place if the record cannot be written', async t => {
    const { layout, known } = await openScene(t)
    writeFileSync(layout.installed, '{')
    await assert.rejects(restoreRecord({ layout, log: collectLog() }, { record: { ...known, discard: ['/etc'] } }))
    assert.deepEqual([readFileSync(layout.installed, 'utf8'), setAside(layout)], ['{', []])
  })
})

describe('recordInstalled', () => {
  it('no longer lists a snapshot for removal if a new snapshot has its path', async t => {
    const { layout } = await openScene(t)
    await recordDiscarded(layout, [SNAPSHOT, '.hub-deploy/snapshots/plugins/greeter/1-2.0.0'])
    await recordInstalled(layout, COMMIT)
    assert.deepEqual(readHostRecord(layout).discard, [SNAPSHOT])
  })
})

describe('the record of a host that this process has locked', () => {
  it('is read once, whatever another process writes', async t => {
    const { layout, known } = await openScene(t)
    holdHostRecord(layout)
    t.after(() => releaseHostRecord(layout))
    writeFileSync(layout.installed, '{')
    assert.deepEqual(readHostRecord(layout), known)
    await recordInstalled(layout, COMMIT)
    assert.deepEqual(
      readHostRecord(layout).installed.map(({ version }) => version),
      ['3.0.0', '2.0.0'],
    )
  })

  it('is read again after the lock is released', async t => {
    const { layout } = await openScene(t)
    holdHostRecord(layout)
    releaseHostRecord(layout)
    writeFileSync(layout.installed, '{"schema":1,"installed":[]}')
    assert.deepEqual(readHostRecord(layout).installed, [])
  })
})
