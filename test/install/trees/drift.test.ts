import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  cpSync,
  linkSync,
  lutimesSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { TreeWriter } from '../../../src/install/archive/writer.ts'
import { TimeSlice } from '../../../src/install/files/time-slice.ts'
import { describeItemSync } from '../../../src/install/files/walk.ts'
import { installPath, type Layout, treeRecordPath } from '../../../src/install/host/layout.ts'
import { recordInstalled } from '../../../src/install/host/record.ts'
import type { TreeDifference } from '../../../src/install/trees/compare.ts'
import {
  addedInWords,
  DriftCheck,
  findDrift,
  findMoving,
  findRecordedIn,
  noteDrift,
  readDriftNote,
  type TreeBefore,
  TreeChange,
} from '../../../src/install/trees/drift.ts'
import {
  type RecordedItem,
  type RecordedTree,
  itemsOf as treeItems,
  writeTreeRecord,
} from '../../../src/install/trees/record.ts'
import { timesMoveOn } from '../../clocks.ts'
import { rewriteKeepingTime, writeTree } from '../../folders.ts'
import { collectLog, prepareTemporaryHost, rowOf } from '../prepared-host.ts'
import { GREETER, installRecorded, GREETER as PLACE, recordTreeAt, treeOf } from './recorded-tree.ts'

const FILES = { 'bin/run': '#!/bin/sh\n', 'lib/a': 'a', 'lib/z.py': 'z', 'lib.txt': 'text', '\u{1f600}': 'face' }
const SYMLINKS = { run: 'bin/run' }
const TREE = { ...GREETER, keepPaths: ['data'] }
const NONE: TreeDifference = { added: [], removed: [], changed: [] }

const ALL = ['bin/run', 'lib/a', 'lib/z.py', 'lib.txt', 'run', '\u{1f600}']

const CASES: Record<string, { change: (root: string) => void; difference: Partial<TreeDifference> }> = {
  nothing: { change: () => {}, difference: {} },
  'an added file': { change: root => writeFileSync(join(root, 'new'), ''), difference: { added: ['new'] } },
  'added files before, between and after the others': {
    change: root => writeTree(root, { aa: '', 'lib/b/c': '', zz: '' }),
    difference: { added: ['aa', 'lib/b/c', 'zz'] },
  },
  'an added symlink': { change: root => symlinkSync('/etc', join(root, 'etc')), difference: { added: ['etc'] } },
  'a file whose name is not UTF-8': {
    change: root => writeFileSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0x66, 0xff])]), ''),
    difference: { added: ['f\ufffd'] },
  },
  'a directory whose name is not UTF-8': {
    change: root => mkdirSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0x66, 0xff])])),
    difference: { added: ['f\ufffd'] },
  },
  'a removed file': { change: root => rmSync(join(root, 'lib/a')), difference: { removed: ['lib/a'] } },
  'a removed directory': {
    change: root => rmSync(join(root, 'lib'), { recursive: true }),
    difference: { removed: ['lib/a', 'lib/z.py'] },
  },
  'a removed tree': {
    change: root => rmSync(root, { recursive: true }),
    difference: { removed: ALL, instead: 'nothing' },
  },
  'a file instead of the tree': {
    change: root => {
      rmSync(root, { recursive: true })
      writeFileSync(root, '')
    },
    difference: { removed: ALL, instead: 'file' },
  },
  'a symlink instead of the tree, which it does not follow': {
    change: root => {
      renameSync(root, `${root}-elsewhere`)
      writeFileSync(`${root}-elsewhere/more`, '')
      symlinkSync(`${root}-elsewhere`, root)
    },
    difference: { removed: ALL, instead: 'symlink' },
  },
  'other bytes of the same length': {
    change: root => writeFileSync(join(root, 'lib/a'), 'b'),
    difference: { changed: ['lib/a'] },
  },
  'other bytes with the old modification time': {
    change: root => {
      rewriteKeepingTime(join(root, 'lib/a'), 'b')
    },
    difference: { changed: ['lib/a'] },
  },
  'another length': { change: root => writeFileSync(join(root, 'lib/a'), 'aa'), difference: { changed: ['lib/a'] } },
  'another mode': { change: root => chmodSync(join(root, 'bin/run'), 0o755), difference: { changed: ['bin/run'] } },
  'a set-uid bit': { change: root => chmodSync(join(root, 'bin/run'), 0o4644), difference: { changed: ['bin/run'] } },
  'another target': {
    change: root => {
      rmSync(join(root, 'run'))
      symlinkSync('lib/a', join(root, 'run'))
    },
    difference: { changed: ['run'] },
  },
  'a file instead of a symlink': {
    change: root => {
      rmSync(join(root, 'run'))
      writeFileSync(join(root, 'run'), '#!/bin/sh\n', { mode: 0o644 })
    },
    difference: { changed: ['run'] },
  },
  'a symlink to the same bytes instead of a file': {
    change: root => {
      renameSync(join(root, 'lib/a'), join(root, '../elsewhere'))
      symlinkSync('../../elsewhere', join(root, 'lib/a'))
    },
    difference: { changed: ['lib/a'] },
  },
  'an empty directory instead of a file': {
    change: root => {
      rmSync(join(root, 'lib/a'))
      mkdirSync(join(root, 'lib/a'))
    },
    difference: { removed: ['lib/a'] },
  },
  'a symlink instead of a directory': {
    change: root => {
      renameSync(join(root, 'lib'), join(root, '../elsewhere'))
      symlinkSync('../elsewhere', join(root, 'lib'))
    },
    difference: { added: ['lib'], removed: ['lib/a', 'lib/z.py'] },
  },
  'anything in a kept path': { change: root => writeTree(root, { 'data/db': '', 'data/x/y': '' }), difference: {} },
  'bytecode caches': {
    change: root => writeTree(root, { 'lib/__pycache__/z.cpython-313.pyc': '', 'x/__pycache__/y': '' }),
    difference: {},
  },
  'bytecode outside a cache, which Python runs without its source': {
    change: root => writeTree(root, { 'lib/z.pyc': '', 'lib/y.pyo': '', 'x.pyc/y': '' }),
    difference: { added: ['lib/y.pyo', 'lib/z.pyc', 'x.pyc/y'] },
  },
  'a file with the name of a bytecode cache': {
    change: root => writeTree(root, { 'lib/__pycache__': '' }),
    difference: { added: ['lib/__pycache__'] },
  },
}

/** Changes that are not drift, because the bytes and the modes stay the same. */
const TOUCHES: Record<string, (root: string) => void> = {
  'files were touched': root => {
    for (const path of Object.keys(FILES)) utimesSync(join(root, path), new Date(), new Date())
    lutimesSync(join(root, 'run'), new Date(), new Date())
  },
  'a file was replaced by a copy': root => {
    copyFileSync(join(root, 'lib/a'), join(root, 'data'))
    renameSync(join(root, 'data'), join(root, 'lib/a'))
  },
  'the whole tree was restored from a backup': root => {
    cpSync(root, `${root}-backup`, { recursive: true, verbatimSymlinks: true })
    rmSync(root, { recursive: true })
    renameSync(`${root}-backup`, root)
  },
  'the tree was moved away and back': root => {
    renameSync(root, `${root}-away`)
    renameSync(`${root}-away`, root)
  },
}

describe('findDrift', () => {
  for (const [name, { change, difference }] of Object.entries(CASES)) {
    it(`finds ${name}`, async t => {
      const { folder, root } = await makeInstalled(t)
      change(root)
      assert.deepEqual(await findDrift(folder, TREE), { ...NONE, ...difference })
      assert.deepEqual(folder.log.lines, [])
    })
  }

  for (const [name, touch] of Object.entries(TOUCHES)) {
    it(`finds nothing when ${name}`, async t => {
      const { folder, root } = await makeInstalled(t)
      touch(root)
      assert.deepEqual(await findDrift(folder, TREE), NONE)
    })
  }

  it('compares the bytecode that was installed, even in a cache', async t => {
    const layout = await prepareTemporaryHost(t)
    const shipped = { 'lib/a.pyc': 'a', 'lib/__pycache__/b.pyc': 'b', '__pycache__/c.pyc': 'c' }
    const { root } = await installRecorded(layout, shipped)
    writeTree(root, { 'lib/a.pyc': 'A', 'lib/__pycache__/b.pyc': 'B', 'lib/__pycache__/new.pyc': '' })
    rmSync(join(root, '__pycache__'), { recursive: true })
    const drift = await findDrift({ layout, log: collectLog() }, TREE)
    const [changed, removed] = [['lib/__pycache__/b.pyc', 'lib/a.pyc'], ['__pycache__/c.pyc']]
    assert.deepEqual(drift, { added: [], removed, changed })
  })

  it('finds other drift even if a path is too long to be read, and counts that path as added', async t => {
    const { folder, root } = await makeInstalled(t)
    const dive = 'for i in $(seq 30); do mkdir "$1" && cd -P "$1" || exit 1; done'
    execFileSync('bash', ['-c', dive, '-', 'n'.repeat(200)], { cwd: root })
    writeFileSync(join(root, 'lib/a'), 'b')
    const drift = await findDrift(folder, TREE)
    assert.deepEqual([drift?.added.length, drift?.changed, folder.log.lines], [1, ['lib/a'], []])
  })

  it('names no more than 10,000 added files, of which there may be millions', async t => {
    const { folder, root } = await makeInstalled(t)
    mkdirSync(join(root, 'many'))
    writeFileSync(join(root, 'many/0'), '')
    // Links one file many times: creating as many files takes ten times as long.
    for (let index = 1; index < 10_050; index++) linkSync(join(root, 'many/0'), join(root, 'many', String(index)))
    writeFileSync(join(root, 'run2'), '')
    rmSync(join(root, 'run'))
    const drift = await findDrift(folder, TREE)
    assert.deepEqual([drift?.added.length, drift?.uncounted, drift?.removed], [10_000, true, ['run']])
  })

  it('does not compare a recorded file that has since become a kept path', async t => {
    const { folder, root } = await makeInstalled(t)
    rmSync(join(root, 'lib/a'))
    writeTree(root, { 'bin/run': 'mine' })
    const keepPaths = ['lib', 'bin/run', 'data', 'run']
    assert.deepEqual(await findDrift(folder, { ...TREE, keepPaths }), NONE)
  })

  it('compares nothing without a record, and logs nothing', async t => {
    const { folder, ...installed } = await makeInstalled(t)
    assert.equal(await findDrift(folder, { ...TREE, id: 'other' }), undefined)
    rmSync(treeRecordPath(folder.layout, installed.tree_record))
    assert.equal(await findDrift(folder, TREE), undefined)
    assert.deepEqual(folder.log.lines, [])
  })

  const damages: Record<string, (path: string) => void> = {
    'has another path': path => writeFileSync(path, readFileSync(path, 'utf8').replace('lib/a', 'lib/b')),
    'is empty': path => writeFileSync(path, ''),
    'has lost its last line': path => writeFileSync(path, readFileSync(path, 'utf8').replace(/.*\n$/, '')),
    'is a directory': path => {
      rmSync(path)
      mkdirSync(path)
    },
    'is a symlink': path => {
      renameSync(path, `${path}-real`)
      symlinkSync(`${path}-real`, path)
    },
  }
  for (const [name, damage] of Object.entries(damages)) {
    it(`names a record that ${name} in a warning, and does not call the tree intact`, async t => {
      const { folder, ...installed } = await makeInstalled(t)
      const path = treeRecordPath(folder.layout, installed.tree_record)
      damage(path)
      assert.equal(await findDrift(folder, TREE), undefined)
      assert.equal(folder.log.lines.length, 1)
      assert.match(folder.log.lines[0] ?? '', /^warning plugins\/greeter is not compared/)
      assert.ok(folder.log.lines[0]?.includes(path))
    })
  }

  it('warns of a damaged installed.json', async t => {
    const { folder } = await makeInstalled(t)
    writeFileSync(folder.layout.installed, '{')
    assert.equal(await findDrift(folder, TREE), undefined)
    assert.ok(folder.log.lines[0]?.includes(folder.layout.installed))
  })

  it('ends with the reason of a cancel, and no warning', async t => {
    const { folder } = await makeInstalled(t)
    const reason = new Error('cancelled')
    await assert.rejects(findDrift(folder, TREE, AbortSignal.abort(reason)), error => error === reason)
    assert.deepEqual(folder.log.lines, [])
  })
})

async function makeInstalled(t: TestContext) {
  const layout = await prepareTemporaryHost(t)
  return { folder: { layout, log: collectLog() }, ...(await installRecorded(layout, FILES, SYMLINKS)) }
}

describe('the drift of a tree whose files changed', () => {
  it('includes changes between their extraction and their record', async t => {
    const layout = await prepareTemporaryHost(t)
    const root = installPath(layout, GREETER)
    mkdirSync(root, { recursive: true })
    const writer = new TreeWriter(root, new TimeSlice())
    const files = ['a', 'b'].map(path => writer.writeFile({ path, mode: 0o644 }, Buffer.from('extracted')))
    await timesMoveOn(layout.staging)
    writeFileSync(join(root, 'b'), 'other now')
    await recordInstalled(layout, {
      rows: [rowOf(await recordTreeAt(layout, root, { files, symlinks: [] }))],
      removed: [],
    })
    assert.deepEqual(await findDrift({ layout, log: collectLog() }, TREE), { ...NONE, changed: ['b'] })
  })
})

describe('DriftCheck', () => {
  it('knows no difference, not even an earlier one, once the places do not contain the recorded trees', async t => {
    const layout = await prepareTemporaryHost(t)
    const { root } = await installRecorded(layout, FILES)
    writeFileSync(join(root, 'lib.txt'), 'changed')
    const check = new DriftCheck({ layout, log: collectLog(), keepPathsOf: () => [], signal: NEVER })
    assert.deepEqual((await check.of(PLACE))?.changed, ['lib.txt'])
    check.disregard()
    assert.equal(await check.of(PLACE), undefined)
    assert.equal(await check.recent(PLACE), undefined)
    assert.equal(await check.again(PLACE), undefined)
    for (const isKept of [true, false]) assert.equal(await check.moved(PLACE, { root, isKept }), undefined)
  })
})

describe('addedInWords', () => {
  for (const [count, isLeast, words] of [
    [1, false, '1 file was added on this host'],
    [12_000, false, '12,000 files were added on this host'],
    [12_000, true, 'at least 12,000 files were added on this host'],
  ] as const)
    it(`says that ${words}`, () => assert.equal(addedInWords(count, isLeast), words))
})

const MOVING_FILES = { 'main.py': 'old', 'lib/a.py': 'a', 'lib/b.py': 'b' }
const LIB = ['lib/a.py', 'lib/b.py']
const NEVER = new AbortController().signal

/** An installed tree with its record, and with a note that there was no drift before a deployment. */
async function openTree(t: TestContext, isAfterCrash = false): Promise<TreeBefore> {
  const layout = await prepareTemporaryHost(t)
  const { root } = await installRecorded(layout, MOVING_FILES)
  await noteDrift(layout.staging, { ...PLACE, root }, { added: [], removed: [], changed: [] })
  const note = readDriftNote(layout.staging, PLACE)
  assert.ok(note)
  return { root, note, recorded: findRecordedIn(layout, PLACE), isAfterCrash }
}

/** Renames `lib`, and renames it back while `act` searches. Resolves to the paths that `act` found. */
async function whileAway(root: string, act: () => Promise<ReadonlySet<string>>): Promise<string[]> {
  renameSync(join(root, 'lib'), join(root, 'last'))
  const back = setTimeout(10).then(() => renameSync(join(root, 'last'), join(root, 'lib')))
  const found = await act()
  await back
  return [...found].toSorted()
}

describe('findMoving', () => {
  for (const isAfterCrash of [false, true]) {
    it(`finds the files of a directory that is renamed away and back${isAfterCrash ? ', by content' : ''}`, async t => {
      const before = await openTree(t, isAfterCrash)
      assert.deepEqual(await whileAway(before.root, () => findMoving(before, LIB, NEVER)), LIB)
    })
  }

  it('does not find a file that is gone, or that was replaced', async t => {
    const before = await openTree(t)
    rmSync(join(before.root, 'lib/a.py'))
    writeFileSync(join(before.root, 'lib/b.py'), 'B')
    assert.deepEqual([...(await findMoving(before, LIB, NEVER))], [])
  })

  it('does not find a file that is neither recorded nor there, or is only one of both', async t => {
    const before = await openTree(t)
    writeFileSync(join(before.root, 'only-there'), '')
    rmSync(join(before.root, 'main.py'))
    assert.deepEqual([...(await findMoving(before, ['nowhere', 'only-there', 'main.py'], NEVER))], [])
  })

  it('reads a file after a crash, when its times prove nothing', async t => {
    const before = await openTree(t, true)
    writeFileSync(join(before.root, 'main.py'), 'new')
    const stamp = describeItemSync(before.root, 'main.py')?.stamp
    const stamped: TreeBefore = {
      ...before,
      recorded: path => {
        const item = before.recorded(path)
        return item && { ...item, stamp }
      },
    }
    const [trusted, read] = [{ ...stamped, isAfterCrash: false }, stamped]
    assert.deepEqual([...(await findMoving(trusted, ['main.py'], NEVER))], ['main.py'])
    assert.deepEqual([...(await findMoving(read, ['main.py'], NEVER))], [])
  })

  it('stops looking once its time is up', async t => {
    const before = await openTree(t)
    assert.deepEqual([...(await findMoving(before, LIB, AbortSignal.abort()))], [])
  })
})

function recordedItems(files: Record<string, string>): RecordedItem[] {
  const items = Object.entries(files).map(([path, text]) => {
    const sha256 = Buffer.from(text).toString('hex').padEnd(64, '0')
    return { path, kind: '644', content: String(text.length), sha256, stamp: undefined }
  })
  return items
}

async function recorded(
  t: TestContext,
  files: Record<string, string>,
): Promise<{ layout: Layout; tree: RecordedTree }> {
  const layout = await prepareTemporaryHost(t)
  return { layout, tree: await writeTreeRecord(layout, recordedItems(files)) }
}

const OLD = { a: '1', b: '1', 'd/e': '1', f: '1' }

describe('TreeChange', () => {
  const cases = {
    '1 file changed, 1 added, 2 removed': { b: '2', c: '1', f: '1' },
    'no file changed': OLD,
    '4 files removed': {},
    '2 files added': { ...OLD, 'd/z': '1', z: '1' },
  }
  for (const [words, files] of Object.entries(cases))
    it(`counts during extraction: ${words}`, async t => {
      const { layout, tree } = await recorded(t, OLD)
      const change = new TreeChange(layout, tree)
      assert.deepEqual([...change.count(recordedItems(files))], recordedItems(files))
      assert.equal(change.inWords(), words)
    })

  const edits = {
    '1 edited file restored': [OLD, { changed: ['b'] }],
    '2 edited files restored': [OLD, { changed: ['b'], removed: ['a'] }],
    '2 added files removed': [OLD, { added: ['y', 'z'] }],
    '2 edited files restored, 1 added file removed': [OLD, { changed: ['b'], removed: ['a'], added: ['z'] }],
    '2 files changed': [{ ...OLD, b: '2' }, { changed: ['a', 'b'] }],
    '1 file changed, 1 added': [
      { ...OLD, b: '2', z: '1' },
      { removed: ['b'], added: ['z'] },
    ],
    '3 files removed': [{ a: '1', b: '1' }, { added: ['z'] }],
    '1 file removed': [{ a: '1', b: '1', f: '1' }, { changed: ['d/e'] }],
    '4 files added': [OLD, { removed: Object.keys(OLD), instead: 'file' }],
    '10,000 added files removed': [OLD, { added: Array.from({ length: 10_000 }, (_, index) => `x${index}`) }],
    '4 files': [OLD, { added: ['x'], uncounted: true }],
  } as const
  for (const [words, [files, drift]] of Object.entries(edits))
    it(`counts edits on the host: ${words}`, async t => {
      const { layout, tree } = await recorded(t, OLD)
      const change = new TreeChange(layout, tree)
      const next = await writeTreeRecord(layout, change.count(recordedItems(files)))
      const none: TreeDifference = { added: [], removed: [], changed: [] }
      const difference = { ...none, ...(structuredClone(drift) as Partial<TreeDifference>) }
      await change.correct(difference, layout, { before: tree, after: next })
      assert.equal(change.inWords(), words)
    })

  it('counts a symlink with another target', async t => {
    const layout = await prepareTemporaryHost(t)
    const tree = treeOf(OLD, { link: 'a' })
    const before = await writeTreeRecord(layout, treeItems(tree, []))
    const next = treeOf({ ...OLD, b: '2' }, { link: 'f' })
    for (const [items, words] of [
      [[...treeItems(tree, [])], 'no file changed'],
      [[...treeItems(next, [])], '2 files changed'],
    ] as const) {
      const change = new TreeChange(layout, before)
      assert.equal([...change.count(items)].length, 5)
      assert.equal(change.inWords(), words)
    }
  })

  it('counts thousands of edits in a large tree, reading each record once', async t => {
    const paths = Array.from({ length: 20_000 }, (_, index) => `f${index}`.padEnd(90, 'x')).toSorted()
    const files = Object.fromEntries(paths.map(path => [path, '1']))
    const { layout, tree } = await recorded(t, files)
    const change = new TreeChange(layout, tree)
    assert.equal([...change.count(recordedItems(files))].length, 20_000)
    await change.correct({ added: [], removed: [], changed: paths }, layout, { before: tree, after: tree })
    assert.equal(change.inWords(), '20,000 edited files restored')
  })

  it('counts the files of a first install', async t => {
    const change = new TreeChange(await prepareTemporaryHost(t), undefined)
    assert.deepEqual([...change.count(recordedItems(OLD))].length, 4)
    assert.equal(change.inWords(), '4 files')
  })

  it('counts only the new files, without an error, if the record of the old ones is damaged', async t => {
    const { layout, tree } = await recorded(t, OLD)
    truncateSync(treeRecordPath(layout, tree.tree_record), 100)
    const change = new TreeChange(layout, tree)
    assert.equal([...change.count(recordedItems({ a: '2' }))].length, 1)
    assert.equal(change.inWords(), '1 file')
  })
})
