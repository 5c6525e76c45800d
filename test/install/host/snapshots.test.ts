import assert from 'node:assert/strict'
import { mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { type Place, snapshotsPath } from '../../../src/install/host/layout.ts'
import {
  chooseRetained,
  dropShipped,
  existingSnapshots,
  findKeptPaths,
  findMovablePaths,
  nextSnapshotName,
  presentPaths,
} from '../../../src/install/host/snapshots.ts'
import { listTree, temporaryDirectory, writeTree } from '../../folders.ts'
import { prepareTemporaryHost, snapshotOf } from '../prepared-host.ts'

const PLACE: Place = { shelf: 'plugins', id: 'x', directory: 'plugins' }

describe('nextSnapshotName', () => {
  const cases = [
    [[], '1.0.0', '1-1.0.0'],
    [['1-0.9', '2-1.0'], '1.1', '3-1.1'],
    [['9-0.9', '10-1.0'], '1.1', '11-1.1'],
    [['2-1.0'], '1.0', '3-1.0'],
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
      const { keep, discard } = chooseRetained(rows, limit)
      assert.deepEqual(
        keep.map(row => row.name),
        kept,
      )
      assert.equal(discard.length, rows.length - kept.length)
    })
  }

  it('keeps forever a version that this action did not install', () => {
    const { keep } = chooseRetained([snapshotOf('1', { artifact_sha256: null }), snapshotOf('2'), snapshotOf('3')], 1)
    assert.deepEqual(
      keep.map(row => row.name),
      ['1', '3'],
    )
  })

  it('keeps forever a snapshot that contains kept paths', () => {
    const rows = [snapshotOf('1', { kept_paths: ['data'] }), snapshotOf('2'), snapshotOf('3')]
    assert.deepEqual(
      chooseRetained(rows, 1).keep.map(row => row.name),
      ['1', '3'],
    )
  })

  const modified = { modified: true } as const

  it('counts modified snapshots separately, so that they never push out a genuine version', () => {
    const rows = [
      snapshotOf('1'),
      snapshotOf('2', modified),
      snapshotOf('3', modified),
      snapshotOf('4'),
      snapshotOf('5', modified),
    ]
    const namesFor = (limit: number): string[] => chooseRetained(rows, limit).keep.map(row => row.name)
    assert.deepEqual(namesFor(0), ['4', '5'])
    assert.deepEqual(namesFor(1), ['4', '5'])
    assert.deepEqual(namesFor(2), ['1', '3', '4', '5'])
    assert.deepEqual(namesFor(3), ['1', '2', '3', '4', '5'])
  })

  it('keeps no snapshot if there is none', () => assert.deepEqual(chooseRetained([], 3), { keep: [], discard: [] }))
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
  it('removes and returns the paths that the host keeps', async t => {
    const staged = temporaryDirectory(t)
    writeTree(staged, { main: 'new', 'data/db': 'empty' })
    assert.deepEqual(await dropShipped(staged, ['data', '.env']), ['data'])
    assert.deepEqual(Object.keys(listTree(staged)), ['main'])
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
