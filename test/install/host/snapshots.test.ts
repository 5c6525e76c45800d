import assert from 'node:assert/strict'
import { mkdirSync, symlinkSync, truncateSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { type Place, SET_ASIDE, snapshotsPath } from '../../../src/install/host/layout.ts'
import { recordInstalled } from '../../../src/install/host/record.ts'
import type { SnapshotRow } from '../../../src/install/host/rows.ts'
import {
  chooseRetained,
  dropShipped,
  existingSnapshots,
  findExpiredAside,
  findKeptPaths,
  findMovablePaths,
  nextAsidePath,
  nextSnapshotName,
  presentPaths,
  withRemovable,
} from '../../../src/install/host/snapshots.ts'
import { listTree, temporaryDirectory, writeTree } from '../../folders.ts'
import { prepareTemporaryHost, rowOf, snapshotOf } from '../prepared-host.ts'

const PLACE: Place = { shelf: 'plugins', id: 'x', directory: 'plugins' }

describe('nextSnapshotName', () => {
  const cases = [
    [[], '1.0.0', '1-1.0.0'],
    [['1-0.9', '2-1.0'], '1.1', '3-1.1'],
    [['9-0.9', '10-1.0'], '1.1', '11-1.1'],
    [['2-1.0'], '1.0', '3-1.0'],
    [['999999999999999-1.0'], '1.1', '999999999999999-1.1'],
    [['notes', 'x-1'], null, '1-unknown'],
    [[], '../../evil', '1-unknown'],
    [[], 'a b', '1-unknown'],
  ] as const
  for (const [present, version, name] of cases) {
    it(`names ${version} after [${present.join(', ')}] ${name}`, async t => {
      const layout = await prepareTemporaryHost(t)
      for (const folder of present) mkdirSync(join(layout.snapshots, 'plugins/x', folder), { recursive: true })
      assert.equal(nextSnapshotName(snapshotsPath(layout, PLACE), version), name)
    })
  }
})

const NOW = new Date('2026-06-01T00:00:00.000Z')
const LONG_AGO = '2026-05-02T00:00:00.000Z'

/** The names of the snapshots that stay. */
function keptOf(rows: readonly SnapshotRow[], limit: number): string[] {
  return chooseRetained(rows, { limit, now: NOW }).keep.map(row => row.name)
}

describe('chooseRetained', () => {
  const rows = ['1', '2', '3', '4'].map(name => snapshotOf(name))
  const limits = [
    [0, ['4']],
    [1, ['4']],
    [2, ['3', '4']],
    [4, ['1', '2', '3', '4']],
    [1000, ['1', '2', '3', '4']],
  ] as const
  for (const [limit, kept] of limits) {
    it(`keeps the newest ${limit}, and always the last good one`, () => {
      const { keep, discard } = chooseRetained(rows, { limit, now: NOW })
      assert.deepEqual(
        keep.map(row => row.name),
        kept,
      )
      assert.equal(discard.length, rows.length - kept.length)
    })
  }

  it('keeps forever a version that this action did not install', () => {
    const rows = [snapshotOf('1', { artifact_sha256: null }), snapshotOf('2'), snapshotOf('3')]
    assert.deepEqual(keptOf(rows, 1), ['1', '3'])
  })

  it('keeps forever a snapshot that contains kept paths', () => {
    const rows = [snapshotOf('1', { kept_paths: ['data'] }), snapshotOf('2'), snapshotOf('3')]
    assert.deepEqual(keptOf(rows, 1), ['1', '3'])
  })

  const modified = { modified: true, retained_at: LONG_AGO } as const

  it('counts modified snapshots separately, so that they never push out a genuine version', () => {
    const rows = [
      snapshotOf('1'),
      snapshotOf('2', modified),
      snapshotOf('3', modified),
      snapshotOf('4'),
      snapshotOf('5', modified),
    ]
    assert.deepEqual(keptOf(rows, 0), ['4', '5'])
    assert.deepEqual(keptOf(rows, 1), ['4', '5'])
    assert.deepEqual(keptOf(rows, 2), ['1', '3', '4', '5'])
    assert.deepEqual(keptOf(rows, 3), ['1', '2', '3', '4', '5'])
  })

  const ages: Record<string, [Partial<SnapshotRow>, boolean]> = {
    'that is a moment less than 30 days old': [{ retained_at: '2026-05-02T00:00:00.001Z' }, true],
    'that is 30 days old': [{ retained_at: LONG_AGO }, false],
    'from a time in the future': [{ retained_at: '2027-01-01T00:00:00.000Z' }, true],
    'that is 30 days old and contains kept paths': [{ retained_at: LONG_AGO, kept_paths: ['data'] }, true],
  }
  for (const [name, [more, stays]] of Object.entries(ages))
    it(`${stays ? 'keeps' : 'discards'} a modified snapshot ${name}, although there are newer ones`, () => {
      const rows = [snapshotOf('1', { modified: true, ...more }), snapshotOf('2', modified), snapshotOf('3', modified)]
      assert.equal(keptOf(rows, 1).includes('1'), stays)
    })

  it('keeps a modified snapshot of unknown age', () => {
    const rows = ['1', '2'].map(name => snapshotOf(name, { modified: true }))
    assert.deepEqual(keptOf(rows, 1), ['1', '2'])
  })

  it('goes by the numbers of modified snapshots, whatever the clock was', () => {
    const at = (year: number) => ({ ...modified, retained_at: `${year}-01-01T00:00:00.000Z` })
    assert.deepEqual(keptOf([snapshotOf('9', at(2025)), snapshotOf('10', at(2020))], 1), ['10'])
  })

  it('keeps no snapshot if there is none', () =>
    assert.deepEqual(chooseRetained([], { limit: 3, now: NOW }), { keep: [], discard: [] }))
})

describe('what was set aside', () => {
  const OLD = Date.parse(LONG_AGO)

  function asideOf(t: TestContext, ...names: string[]): string {
    const root = temporaryDirectory(t)
    writeTree(root, Object.fromEntries(names.map(name => [`${SET_ASIDE}/${name}`, ''])))
    return root
  }

  it('gets the number after the highest one', t => {
    const root = asideOf(t, `9-${OLD}-a`, `10-${OLD}-b`, 'notes')
    assert.match(nextAsidePath(root, 'plugins_x'), /^\.hub-deploy\/snapshots\/set-aside\/11-\d{13}-plugins_x$/)
    assert.match(nextAsidePath(temporaryDirectory(t), 'x'), /\/1-\d{13}-x$/)
  })

  it('expires as modified snapshots do', t => {
    const root = asideOf(t, `9-${OLD}-a`, `10-${OLD}-b`, `11-${NOW.getTime()}-c`, `12-${OLD}-d`, `13-${OLD}-e`)
    const expiredOf = (limit: number): string[] =>
      findExpiredAside(root, { limit, now: NOW }).map(path => basename(path))
    assert.deepEqual(expiredOf(1), [`10-${OLD}-b`, `12-${OLD}-d`, `9-${OLD}-a`])
    assert.deepEqual(expiredOf(0), expiredOf(1))
    assert.deepEqual(expiredOf(4), [`9-${OLD}-a`])
  })

  it('never expires if it is a staging folder, which may contain kept paths, or is not from this action', t => {
    const root = asideOf(t, `1-${OLD}-staging-x`, 'notes', `${OLD}-0a1b2c3d-x`, `2-${OLD}-a`, `3-${OLD}-b`)
    assert.deepEqual(
      findExpiredAside(root, { limit: 1, now: NOW }).map(path => basename(path)),
      [`2-${OLD}-a`],
    )
  })
})

describe('withRemovable', () => {
  const full = new DeploymentError('disk_full', 'No space left.')

  it('names the oldest copies of changed files, with the space that they take', async t => {
    const layout = await prepareTemporaryHost(t)
    const row = rowOf({
      snapshots: [
        snapshotOf('1-1.0.0', { modified: true, retained_at: LONG_AGO }),
        snapshotOf('2-2.0.0', { modified: true, kept_paths: ['data'] }),
        snapshotOf('3-3.0.0'),
      ],
    })
    await recordInstalled(layout, { rows: [row], removed: [] })
    const snapshot = '.hub-deploy/snapshots/plugins/greeter'
    writeTree(layout.root, {
      [`${snapshot}/1-1.0.0/lib/main`]: 'x'.repeat(1_000_000),
      [`${snapshot}/2-2.0.0/data`]: 'mine',
      [`${snapshot}/3-3.0.0/main`]: '',
      [`${SET_ASIDE}/1-${NOW.getTime()}-plugins_x`]: '',
    })
    // A hole, which takes no space.
    truncateSync(join(layout.root, snapshot, '1-1.0.0/lib/main'), 2 ** 40)
    const { code, message } = await withRemovable(layout, full)
    assert.equal(code, 'disk_full')
    const names = [...message.matchAll(/(\.hub-deploy\/snapshots\/\S+) \((at least )?([\d.]+ \S+)\)/g)]
    assert.deepEqual(
      names.map(([, path]) => path),
      [`${snapshot}/1-1.0.0`, `${SET_ASIDE}/1-${NOW.getTime()}-plugins_x`],
    )
    assert.match(names[0]?.[3] ?? '', /^1(\.\d+)? MB$/)
  })

  it('adds nothing to another error, or if there are no such copies', async t => {
    const layout = await prepareTemporaryHost(t)
    const other = new DeploymentError('locked', 'Another run has the host.')
    assert.equal(await withRemovable(layout, full), full)
    assert.equal(await withRemovable(layout, other), other)
  })
})

describe('existingSnapshots', () => {
  it('leaves out snapshots that an operator has removed', async t => {
    const layout = await prepareTemporaryHost(t)
    mkdirSync(join(layout.snapshots, 'plugins/x/2-1.0'), { recursive: true })
    const rows = [snapshotOf('1-0.9'), snapshotOf('2-1.0')]
    assert.deepEqual(existingSnapshots(snapshotsPath(layout, PLACE), rows), rows.slice(1))
  })

  it('lists the kept paths that each snapshot still has', async t => {
    const layout = await prepareTemporaryHost(t)
    for (const path of ['1-0.9/data', '2-1.0'])
      mkdirSync(join(layout.snapshots, 'plugins/x', path), { recursive: true })
    const rows = ['1-0.9', '2-1.0'].map(name => snapshotOf(name, { kept_paths: ['data', '.env'] }))
    assert.deepEqual(existingSnapshots(snapshotsPath(layout, PLACE), rows), [
      snapshotOf('1-0.9', { kept_paths: ['data'] }),
      snapshotOf('2-1.0'),
    ])
  })
})

describe('findKeptPaths', () => {
  const cases = {
    'only existing paths': [['.env', 'data'], ['data']],
    'a path listed twice only once': [['data', 'data'], ['data']],
    'the outer of two': [['data/db', 'data'], ['data']],
    'both of two that merely begin alike': [
      ['data', 'data2'],
      ['data', 'data2'],
    ],
    'nothing below a file': [['data2/x'], []],
  } as const
  for (const [name, [keepPaths, kept]] of Object.entries(cases)) {
    it(`finds ${name}`, t => {
      const installed = temporaryDirectory(t)
      writeTree(installed, { 'data/db': 'rows', data2: 'x' })
      assert.deepEqual(findKeptPaths({ root: installed, keepPaths }, temporaryDirectory(t)), kept)
    })
  }

  it('finds nothing if no version is installed', t => {
    assert.deepEqual(findKeptPaths({ root: '/no/such/place', keepPaths: ['data'] }, temporaryDirectory(t)), [])
  })
})

describe('findMovablePaths', () => {
  it('asks for a directory if the tree itself is a symlink', t => {
    const folder = temporaryDirectory(t)
    writeTree(folder, { 'tree/data': 'x' })
    symlinkSync('tree', `${folder}/link`)
    const find = () => findMovablePaths({ root: `${folder}/link`, keepPaths: ['data'] })
    assert.throws(find, {
      code: 'step_failed',
      message: /^The kept path data cannot be moved to another version: \S+ is not a directory\. Replace it with a/,
    })
  })
})

describe('dropShipped', () => {
  it('moves the paths that the host keeps to the trash, and returns them', async t => {
    const layout = await prepareTemporaryHost(t)
    writeTree(layout.staging, { main: 'new', 'data/db': 'empty' })
    assert.deepEqual(dropShipped(layout, layout.staging, ['data', '.env']), ['data'])
    assert.deepEqual(Object.keys(listTree(layout.staging)), ['main'])
    assert.deepEqual(Object.values(listTree(layout.trash)), ['755 directory', '644 empty'])
  })
})

describe('presentPaths', () => {
  it('returns the paths that exist, without those inside another of the paths', t => {
    const root = temporaryDirectory(t)
    writeTree(root, { '.env': 'A=1', 'data/db': 'rows' })
    assert.deepEqual(presentPaths(root, ['data/db', 'data', 'cache', '.env']), ['data', '.env'])
    assert.deepEqual(presentPaths(`${root}/gone`, ['data']), [])
  })
})
