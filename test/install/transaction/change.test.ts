import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import {
  announceable,
  applyChange,
  type Change,
  changeSchema,
  placesIn,
  undoChange,
} from '../../../src/install/transaction/change.ts'
import { listTree } from '../archive/directory-listing.ts'
import { temporaryDirectory, writeTree } from '../temporary-directory.ts'

const KINDS: { name: string; change: Change; countsAsChange: boolean }[] = [
  { name: 'make_directory', change: { type: 'make_directory', path: 'plugins' }, countsAsChange: false },
  { name: 'move of a tree', change: { type: 'move', from: 'old/tree', to: 'new/tree' }, countsAsChange: true },
  {
    name: 'create_file',
    change: { type: 'create_file', staged: 'old/tree/file', path: 'new/file' },
    countsAsChange: true,
  },
]

function makeRoot(t: Parameters<typeof temporaryDirectory>[0]): string {
  const root = temporaryDirectory(t)
  writeTree(root, { 'old/tree/file': 'kept' })
  mkdirSync(join(root, 'new'))
  return root
}

describe('undoChange', () => {
  for (const { name, change, countsAsChange } of KINDS) {
    it(`restores the exact tree after a ${name}, any number of times`, async t => {
      const root = makeRoot(t)
      const before = listTree(root)
      await applyChange(root, change)
      assert.notDeepEqual(listTree(root), before)
      assert.equal((await undoChange(root, change)).wasMade, countsAsChange)
      assert.deepEqual(listTree(root), before)
      assert.equal((await undoChange(root, change)).wasMade, false)
      assert.deepEqual(listTree(root), before)
    })

    it(`does nothing for a ${name} that was announced but not made`, async t => {
      const root = makeRoot(t)
      const before = listTree(root)
      assert.equal((await undoChange(root, change)).wasMade, false)
      assert.deepEqual(listTree(root), before)
    })
  }

  it('keeps a directory that another process uses by now', async t => {
    const root = makeRoot(t)
    const change: Change = { type: 'make_directory', path: 'plugins' }
    await applyChange(root, change)
    writeFileSync(join(root, 'plugins/theirs'), '')
    await undoChange(root, change)
    assert.ok('plugins/theirs' in listTree(root))
  })

  it("does not remove another process's file at the path of ours", async t => {
    const root = makeRoot(t)
    const change: Change = { type: 'create_file', staged: 'old/tree/file', path: 'new/file' }
    writeFileSync(join(root, 'new/file'), 'kept')
    assert.equal((await undoChange(root, change)).wasMade, false)
    assert.ok('new/file' in listTree(root))
  })

  it('does not remove a created file without the staged one that proves that it is ours', async t => {
    const root = makeRoot(t)
    writeFileSync(join(root, 'new/file'), '')
    await undoChange(root, { type: 'create_file', staged: 'old/gone', path: 'new/file' })
    assert.ok('new/file' in listTree(root))
  })

  const move: Change = { type: 'move', from: 'old/tree', to: 'new/tree' }
  it('sets aside what another process has put where a tree is moved back', async t => {
    const root = makeRoot(t)
    mkdirSync(join(root, '.hub-deploy/snapshots'), { recursive: true })
    const announced = announceable(root, move)
    await applyChange(root, announced)
    writeTree(root, { 'old/tree/file': 'theirs' })
    const { wasMade, setAside } = await undoChange(root, announced)
    assert.equal(wasMade, true)
    assert.equal(readFileSync(join(root, 'old/tree/file'), 'utf8'), 'kept')
    assert.equal(readFileSync(join(root, String(setAside), 'file'), 'utf8'), 'theirs')
  })

  it('ignores the inodes on a copied host, where all of them differ', async t => {
    const root = makeRoot(t)
    await applyChange(root, move)
    assert.equal((await undoChange(root, { ...move, ino: '1' })).wasMade, true)
    assert.equal((await undoChange(root, { ...move, ino: '1' })).wasMade, false)
  })

  it('recognises by its inode what is already back, even if something is at the other path', async t => {
    const root = makeRoot(t)
    const announced = announceable(root, move)
    writeTree(root, { 'new/tree/other': 'theirs' })
    const before = listTree(root)
    assert.deepEqual(await undoChange(root, announced), { wasMade: false, setAside: null })
    assert.deepEqual(listTree(root), before)
  })

  it('throws when neither path of a move exists', async t => {
    await assert.rejects(undoChange(temporaryDirectory(t), move))
  })
})

describe('applyChange', () => {
  const taken: [string, Change][] = [
    ['a directory', { type: 'make_directory', path: 'new' }],
    ['a file by a directory', { type: 'make_directory', path: 'old/tree/file' }],
    ['an empty directory by a moved tree', { type: 'move', from: 'old/tree', to: 'new' }],
    ['a file by a moved one', { type: 'move', from: 'old/tree/file', to: 'old/other' }],
    ['a file by a created one', { type: 'create_file', staged: 'old/tree/file', path: 'old/other' }],
  ]
  for (const [name, change] of taken) {
    it(`never replaces ${name}`, async t => {
      const root = makeRoot(t)
      writeTree(root, { 'old/other': 'theirs' })
      const before = listTree(root)
      await assert.rejects(applyChange(root, change))
      assert.throws(() => announceable(root, change))
      assert.deepEqual(listTree(root), before)
    })
  }
})

describe('announceable', () => {
  it('refuses to move what does not exist', t => {
    assert.throws(() => announceable(makeRoot(t), { type: 'move', from: 'gone', to: 'new/x' }))
  })

  it('accepts every other change', t => {
    const root = makeRoot(t)
    for (const { change } of KINDS) announceable(root, change)
  })
})

describe('changeSchema', () => {
  const outside = ['', '.', '..', '../x', 'a/../../x', 'a/../b', '/etc', './a', 'a//b', 'a/', 'a/.', '../../tmp/x']
  for (const path of outside) {
    it(`refuses ${JSON.stringify(path)} in every path`, () => {
      const changes = [
        { type: 'make_directory', path },
        { type: 'move', from: path, to: 'a' },
        { type: 'move', from: 'a', to: path },
        { type: 'create_file', staged: path, path: 'a' },
        { type: 'create_file', staged: 'a', path },
      ]
      for (const change of changes) assert.ok(!changeSchema.safeParse(change).success)
    })
  }

  for (const path of ['a', 'plugins/greeter', '.hub-deploy/snapshots/plugins/x/1-1.0', 'a/..b', 'a/b..']) {
    it(`accepts ${path}`, () => assert.ok(changeSchema.safeParse({ type: 'make_directory', path }).success))
  }
})

describe('placesIn', () => {
  it('lists the places into or out of which trees are moved, each once', () => {
    const changes: Change[] = [
      { type: 'move', from: 'extensions/gone', to: '.hub-deploy/snapshots/extensions/gone/1-1.0' },
      { type: 'make_directory', path: 'plugins/x' },
      { type: 'move', from: 'plugins/x', to: '.hub-deploy/snapshots/plugins/x/1-1.0' },
      { type: 'move', from: '.hub-deploy/snapshots/plugins/x/1-1.0/data', to: '.hub-deploy/staging/1/x/data' },
      { type: 'move', from: '.hub-deploy/staging/1/x', to: 'plugins/x' },
      { type: 'create_file', staged: '.hub-deploy/staging/1/x.env', path: 'plugins/x.env' },
    ]
    assert.deepEqual(placesIn(changes), [
      { shelf: 'extensions', id: 'gone' },
      { shelf: 'plugins', id: 'x' },
    ])
  })
})
