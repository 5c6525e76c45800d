import assert from 'node:assert/strict'
import { lstatSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import {
  announceable,
  applyChanges,
  type Change,
  changeSchema,
  describeChange,
  directoriesIn,
  isMade,
  type PlannedChange,
  placesIn,
  undoChange,
} from '../../../src/install/changes/change.ts'
import { listTree, temporaryDirectory, writeTree } from '../../folders.ts'

const STAGING = '.hub-deploy/staging/7f6c7a52-7a0a-4d4b-9d53-6f6a3f6d1b11'
const SNAPSHOT = '.hub-deploy/snapshots/plugins/x/1-1.0.0'
/** The identity of a file or tree; nothing on this host has it. */
const [ino, times] = ['7', '1 1']

const KINDS: { name: string; change: PlannedChange; countsAsChange: boolean }[] = [
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
      const made = await announceable(root, change)
      await applyChanges(root, [made])
      assert.notDeepEqual(listTree(root), before)
      assert.equal((await undoChange(root, made)).wasMade, countsAsChange)
      assert.deepEqual(listTree(root), before)
      assert.equal((await undoChange(root, made)).wasMade, false)
      assert.deepEqual(listTree(root), before)
    })

    it(`does nothing for a ${name} that was announced but not made`, async t => {
      const root = makeRoot(t)
      const before = listTree(root)
      assert.equal((await undoChange(root, await announceable(root, change))).wasMade, false)
      assert.deepEqual(listTree(root), before)
    })
  }

  it('keeps a directory that another process now uses', async t => {
    const root = makeRoot(t)
    const change: Change = { type: 'make_directory', path: 'plugins' }
    await applyChanges(root, [change])
    writeFileSync(join(root, 'plugins/theirs'), '')
    await undoChange(root, change)
    assert.ok('plugins/theirs' in listTree(root))
  })

  it("does not remove another process's file at the path of ours", async t => {
    const root = makeRoot(t)
    const change: Change = { type: 'create_file', staged: 'old/tree/file', path: 'new/file', ino }
    writeFileSync(join(root, 'new/file'), 'kept')
    assert.equal((await undoChange(root, change)).wasMade, false)
    assert.ok('new/file' in listTree(root))
  })

  it('does not remove a created file without the staged file that proves that it is ours', async t => {
    const root = makeRoot(t)
    writeFileSync(join(root, 'new/file'), '')
    await undoChange(root, { type: 'create_file', staged: 'old/gone', path: 'new/file', ino })
    assert.ok('new/file' in listTree(root))
  })

  it('does not put a file that may be ours anywhere but into a real staging folder', async t => {
    const root = makeRoot(t)
    const outside = temporaryDirectory(t)
    writeTree(root, { 'plugins/x.env': 'planted', [`${STAGING}/file`]: '' })
    symlinkSync(outside, join(root, STAGING, 'link'))
    symlinkSync(outside, join(root, `${STAGING.slice(0, -1)}2`))
    const path = 'plugins/x.env'
    const found = String(lstatSync(join(root, path)).ino)
    for (const staged of ['/link/keys', '/link/a/keys', '/file/keys'].map(name => STAGING + name))
      assert.equal((await undoChange(root, { type: 'create_file', staged, path, ino: found })).wasMade, false)
    const staged = `${STAGING.slice(0, -1)}2/keys`
    assert.equal((await undoChange(root, { type: 'create_file', staged, path, ino: found })).wasMade, false)
    assert.deepEqual([listTree(outside), readFileSync(join(root, path), 'utf8')], [{}, 'planted'])
  })

  it('removes no settings from a directory to which a symlink in the place of a part leads', async t => {
    const root = makeRoot(t)
    const outside = temporaryDirectory(t)
    writeTree(outside, { '.env': 'a secret' })
    writeTree(root, { 'plugins/y/file': '', [`${STAGING}/a/file`]: '' })
    symlinkSync(outside, join(root, 'plugins/x'))
    const found = String(lstatSync(join(outside, '.env')).ino)
    const change: Change = { type: 'create_file', staged: `${STAGING}/a/.env`, path: 'plugins/x/.env', ino: found }
    assert.equal(isMade(root, change), false)
    assert.equal((await undoChange(root, change)).wasMade, false)
    assert.equal(readFileSync(join(outside, '.env'), 'utf8'), 'a secret')
  })

  it('moves nothing into a directory to which a symlink in the place of a staging folder leads', async t => {
    const root = makeRoot(t)
    const outside = temporaryDirectory(t)
    mkdirSync(join(root, '.hub-deploy/staging'), { recursive: true })
    symlinkSync(outside, join(root, STAGING))
    writeTree(root, { 'plugins/x/keys': 'planted' })
    const planted = String(lstatSync(join(root, 'plugins/x')).ino)
    const change: Change = { type: 'move', from: `${STAGING}/x`, to: 'plugins/x', ino: planted, times }
    await assert.rejects(undoChange(root, change), { code: 'ENOENT' })
    assert.deepEqual(listTree(outside), {})
  })

  const move: PlannedChange = { type: 'move', from: 'old/tree', to: 'new/tree' }
  it('sets aside files that another process has put where a tree is moved back', async t => {
    const root = makeRoot(t)
    mkdirSync(join(root, '.hub-deploy/snapshots'), { recursive: true })
    const announced = await announceable(root, move)
    await applyChanges(root, [announced])
    writeTree(root, { 'old/tree/file': 'theirs' })
    const { wasMade, setAside } = await undoChange(root, announced)
    assert.equal(wasMade, true)
    assert.equal(readFileSync(join(root, 'old/tree/file'), 'utf8'), 'kept')
    assert.equal(readFileSync(join(root, String(setAside[0]), 'file'), 'utf8'), 'theirs')
  })

  it('does not move back another directory from the place to which a tree was moved', async t => {
    const root = makeRoot(t)
    const announced = await announceable(root, move)
    writeTree(root, { 'new/tree/file': 'theirs' })
    rmSync(join(root, 'old/tree'), { recursive: true })
    const before = listTree(root)
    await assert.rejects(undoChange(root, announced), /neither path/)
    assert.deepEqual(listTree(root), before)
  })

  it('does not mistake the restored version for the new one', async t => {
    const root = temporaryDirectory(t)
    writeTree(root, { [`${STAGING}/tree/main`]: 'new' })
    const announced = await announceable(root, { type: 'move', from: `${STAGING}/tree`, to: 'plugins/x' })
    writeTree(root, { 'plugins/x/main': 'old' })
    rmSync(join(root, STAGING), { recursive: true })
    await undoChange(root, announced)
    assert.equal(readFileSync(join(root, 'plugins/x/main'), 'utf8'), 'old')
  })

  it('moves back a kept file that the new version has replaced by a rename', async t => {
    const root = temporaryDirectory(t)
    writeTree(root, { [`${SNAPSHOT}/state.json`]: '1', [`${STAGING}/tree/main`]: 'new' })
    const kept = { type: 'move', from: `${SNAPSHOT}/state.json`, to: `${STAGING}/tree/state.json` } as const
    const announced = await announceable(root, kept)
    await applyChanges(root, [announced])
    writeFileSync(join(root, 'written'), '2')
    renameSync(join(root, 'written'), join(root, kept.to))
    assert.equal((await undoChange(root, announced)).wasMade, true)
    assert.equal(readFileSync(join(root, kept.from), 'utf8'), '2')
  })

  it('recognizes a tree that is already back by its inode, even if the other path exists', async t => {
    const root = makeRoot(t)
    const announced = await announceable(root, move)
    writeTree(root, { 'new/tree/other': 'theirs' })
    const before = listTree(root)
    assert.deepEqual(await undoChange(root, announced), { wasMade: false, setAside: [] })
    assert.deepEqual(listTree(root), before)
  })

  it('throws when neither path of a move exists', async t => {
    await assert.rejects(undoChange(temporaryDirectory(t), { ...move, ino, times }), {
      message: /are at neither path$/,
    })
  })
})

describe('applyChanges', () => {
  const taken: [string, PlannedChange][] = [
    ['a directory', { type: 'make_directory', path: 'new' }],
    ['a file with a directory', { type: 'make_directory', path: 'old/tree/file' }],
    ['an empty directory with a moved tree', { type: 'move', from: 'old/tree', to: 'new' }],
    ['a file with a moved one', { type: 'move', from: 'old/tree/file', to: 'old/other' }],
    ['a file with a created one', { type: 'create_file', staged: 'old/tree/file', path: 'old/other' }],
  ]
  for (const [name, change] of taken) {
    it(`never replaces ${name}`, async t => {
      const root = makeRoot(t)
      writeTree(root, { 'old/other': 'theirs' })
      const before = listTree(root)
      await assert.rejects(applyChanges(root, [change]), { code: /^(?:EEXIST|step_failed)$/ })
      await assert.rejects(announceable(root, change), { code: 'step_failed', message: /^\S+ has just appeared: / })
      assert.deepEqual(listTree(root), before)
    })
  }
})

describe('settings inside a plugin', () => {
  for (const [what, link] of Object.entries({ 'a folder in it': 'plugins/x/conf', 'the plugin': 'plugins/x' }))
    it(`are not created behind a symlink in the place of ${what}`, async t => {
      const root = makeRoot(t)
      const outside = temporaryDirectory(t)
      writeTree(root, { 'plugins/x/conf/other': '', [`${STAGING}/injected/x.env`]: 'A=1' })
      writeTree(outside, { 'conf/file': '' })
      const staged = `${STAGING}/injected/x.env`
      const change = await announceable(root, { type: 'create_file', staged, path: 'plugins/x/conf/.profile' })
      rmSync(join(root, link), { recursive: true })
      symlinkSync(what === 'the plugin' ? outside : join(outside, 'conf'), join(root, link))
      await assert.rejects(applyChanges(root, [change]), { code: 'step_failed' })
      assert.deepEqual(Object.keys(listTree(outside)), ['conf', 'conf/file'])
      assert.equal((await undoChange(root, change)).wasMade, false)
    })

  it('are created and removed in a plugin whose shelf is a symlink', async t => {
    const root = makeRoot(t)
    const shelf = temporaryDirectory(t)
    writeTree(root, { [`${STAGING}/injected/x.env`]: 'A=1' })
    writeTree(shelf, { 'x/conf/other': '' })
    symlinkSync(shelf, join(root, 'plugins'))
    const staged = `${STAGING}/injected/x.env`
    const change = await announceable(root, { type: 'create_file', staged, path: 'plugins/x/conf/app.env' })
    await applyChanges(root, [change])
    assert.ok('x/conf/app.env' in listTree(shelf))
    assert.equal((await undoChange(root, change)).wasMade, true)
    assert.ok(!('x/conf/app.env' in listTree(shelf)))
  })
})

describe('announceable', () => {
  it('refuses to move a missing path', async t => {
    await assert.rejects(announceable(makeRoot(t), { type: 'move', from: 'gone', to: 'new/x' }), {
      message: /^gone has just disappeared: /,
    })
  })

  it('accepts every other change', async t => {
    const root = makeRoot(t)
    for (const { change } of KINDS) await announceable(root, change)
  })
})

describe('changeSchema', () => {
  const allowed: Change[] = [
    { type: 'make_directory', path: 'extensions' },
    { type: 'move', from: 'plugins/x', to: SNAPSHOT, ino, times },
    { type: 'move', from: `${SNAPSHOT}/data/a b`, to: `${STAGING}/tree/plugins/x/data/a b`, ino, times },
    { type: 'move', from: `${STAGING}/tree`, to: 'extensions/x', ino, times },
    { type: 'move', from: SNAPSHOT, to: `${STAGING}/restored/plugins/x`, ino, times },
    { type: 'move', from: `${STAGING}/replaced/plugins/x/etc/a b`, to: `${SNAPSHOT}/etc/a b`, ino, times },
    { type: 'create_file', staged: `${STAGING}/x.env`, path: 'plugins/x.env', ino },
    { type: 'create_file', staged: `${STAGING}/injected/x.env`, path: 'plugins/x/.env', ino },
    { type: 'make_directory', path: 'app/of/plugins' },
    { type: 'move', from: 'app/of/plugins/x', to: SNAPSHOT, ino, times },
    { type: 'move', from: `${STAGING}/tree`, to: 'app/of/plugins/x', ino, times },
  ]
  for (const change of allowed) {
    it(`accepts: ${describeChange(change)}`, () => assert.deepEqual(changeSchema.parse(change), change))
  }

  const outside = [
    '',
    '.',
    '..',
    '../x',
    'a/../../x',
    '/etc',
    './plugins',
    'plugins//x',
    'plugins/',
    'plugins/.',
    '../../x',
  ]
  const elsewhere = [
    'a',
    'plugins',
    'extensions/x/y',
    '.hub-deploy',
    '.hub-deploy/snapshots',
    '.hub-deploy/installed.json',
  ]
  const escaping = [`${STAGING}/../x`, `${STAGING}/tree/..`, `${SNAPSHOT}/../2-1`, `${STAGING}`, `${STAGING}/a\u0000b`]
  for (const path of [...outside, ...elsewhere, ...escaping]) {
    it(`refuses ${JSON.stringify(path)} in every path`, () => {
      const changes = [
        { type: 'make_directory', path: ['a', 'plugins'].includes(path) ? '' : path },
        { type: 'move', from: path, to: SNAPSHOT, ino, times },
        { type: 'move', from: path, to: 'plugins/x', ino, times },
        { type: 'move', from: `${STAGING}/tree`, to: path, ino, times },
        { type: 'create_file', staged: path, path: 'plugins/x.env', ino },
        { type: 'create_file', staged: `${STAGING}/x.env`, path, ino },
      ]
      for (const change of changes) assert.ok(!changeSchema.safeParse(change).success, JSON.stringify(change))
    })
  }

  const moves: [string, string][] = [
    ['plugins/x', 'plugins/y'],
    ['plugins/x', 'app/x'],
    ['plugins/x.env', 'app/x.env'],
    ['app/x/y', SNAPSHOT],
    ['plugins/other', SNAPSHOT],
    [SNAPSHOT, 'plugins/x'],
    [`${SNAPSHOT}/data`, `${STAGING}/tree/other`],
    [`${STAGING}/tree`, `${STAGING}/other`],
    [`${STAGING}/tree`, SNAPSHOT],
    [SNAPSHOT, `${STAGING}/tree`],
    [SNAPSHOT, `${STAGING}/restored/plugins/y`],
    [SNAPSHOT, `${STAGING}/restored/plugins/x/data`],
    [`${STAGING}/replaced/plugins/x/data`, `${SNAPSHOT}/other`],
    [`${STAGING}/replaced/plugins/y/data`, `${SNAPSHOT}/data`],
    [`${STAGING}/replaced/plugins/x/data`, SNAPSHOT],
  ]
  for (const [from, to] of moves) {
    it(`refuses a move from ${from} to ${to}, which no deployment makes`, () =>
      assert.ok(!changeSchema.safeParse({ type: 'move', from, to, ino }).success))
  }

  for (const wrong of [undefined, '', '-1', '1e3', 7]) {
    it(`refuses a move with the inode ${wrong}`, () =>
      assert.ok(!changeSchema.safeParse({ type: 'move', from: 'plugins/x', to: SNAPSHOT, ino: wrong, times }).success))
  }
})

describe('placesIn', () => {
  it('lists once each place that trees are moved into or out of', () => {
    const changes: Change[] = [
      { type: 'move', ino, times, from: 'extensions/gone', to: '.hub-deploy/snapshots/extensions/gone/1-1.0' },
      { type: 'make_directory', path: 'plugins/x' },
      { type: 'move', ino, times, from: 'plugins/x', to: '.hub-deploy/snapshots/plugins/x/1-1.0' },
      {
        type: 'move',
        ino,
        times,
        from: '.hub-deploy/snapshots/plugins/x/1-1.0/data',
        to: '.hub-deploy/staging/1/x/data',
      },
      { type: 'move', ino, times, from: '.hub-deploy/staging/1/x', to: 'plugins/x' },
      { type: 'create_file', ino, staged: '.hub-deploy/staging/1/x.env', path: 'plugins/x.env' },
      { type: 'move', ino, times, from: '.hub-deploy/staging/1/x', to: 'app/of/x' },
    ]
    assert.deepEqual(placesIn(changes), [
      { shelf: 'extensions', id: 'gone', directory: 'extensions' },
      { shelf: 'plugins', id: 'x', directory: 'plugins' },
      { shelf: 'plugins', id: 'x', directory: 'app/of' },
    ])
  })
})

describe('directoriesIn', () => {
  it('are those in which any change works', () => {
    const file = { type: 'create_file' as const, staged: `${STAGING}/x`, ino }
    const changes: Change[] = [
      { type: 'make_directory', path: 'a/b' },
      { ...file, path: 'c/x.env' },
      { ...file, path: 'd/e/x/.env' },
      { type: 'move', from: 'f/x', to: SNAPSHOT, ino, times },
    ]
    assert.deepEqual(directoriesIn(changes).toSorted(), ['a/b', 'c', 'd/e', 'f'])
  })
})
