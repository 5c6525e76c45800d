import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { hash } from 'node:crypto'
import { chmodSync, mkdirSync, renameSync, rmSync, symlinkSync, truncateSync, unlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { isBelow } from '../../../src/core/identifiers.ts'
import { scanTree } from '../../../src/install/files/walk.ts'
import { compareTree, describeTree, findStrayCaches, TreeStamps } from '../../../src/install/trees/compare.ts'
import { compareRecorded } from '../../../src/install/trees/drift.ts'
import { digestOfItems, itemsOf, readTreeRecord, writeTreeRecord } from '../../../src/install/trees/record.ts'
import { timesMoveOn } from '../../clocks.ts'
import { rewriteKeepingTime, temporaryDirectory, writeTree } from '../../folders.ts'
import { failOpen } from '../failing-calls.ts'
import { prepareTemporaryHost } from '../prepared-host.ts'
import { installRecorded, treeOf } from './recorded-tree.ts'

const FILES = { 'bin/run': '#!/bin/sh\n', 'lib/a': 'a', 'lib/gone': 'x' }

/** Files that a service may leave in its own tree. */
const ADDED: Record<string, (root: string) => void> = {
  'two names that are not UTF-8 and decode to the same text': root => {
    for (const byte of [0xfe, 0xff]) writeFileSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([byte])]), '')
  },
  'a file of a terabyte': root => {
    writeTree(root, { 'cache.bin': '' })
    truncateSync(join(root, 'cache.bin'), 2 ** 40)
  },
  'a file that nobody may read': root => {
    writeTree(root, { 'lib/key': 'k' })
    chmodSync(join(root, 'lib/key'), 0)
  },
  'a pipe and symlinks': root => {
    execFileSync('mkfifo', [join(root, 'pipe')])
    symlinkSync('/etc/hostname', join(root, 'etc'))
    symlinkSync('round', join(root, 'round'))
  },
  'names with line breaks and quotes': root => writeTree(root, { 'a\nb\t"': '', '"': '' }),
  'bytecode that Python has cached': root => writeTree(root, { 'lib/__pycache__/a.pyc': '', 'lib/a.pyc': '' }),
}

const CHANGES: Record<string, (root: string) => void> = {
  'a changed, an added and a removed file': root => {
    writeFileSync(join(root, 'lib/a'), 'b')
    writeTree(root, { 'new/file': 'new' })
    rmSync(join(root, 'lib/gone'))
  },
  'another mode': root => chmodSync(join(root, 'bin/run'), 0o4755),
  'symlinks in place of files, to anywhere and in a loop': root => {
    for (const path of ['lib/a', 'lib/gone']) rmSync(join(root, path))
    symlinkSync('/etc/hostname', join(root, 'lib/a'))
    symlinkSync('gone', join(root, 'lib/gone'))
  },
  'a pipe in place of a file': root => {
    rmSync(join(root, 'lib/a'))
    execFileSync('mkfifo', [join(root, 'lib/a')])
  },
  'a directory instead of a file': root => {
    rmSync(join(root, 'lib/a'))
    mkdirSync(join(root, 'lib/a'))
  },
  ...ADDED,
}

describe('the comparison of a tree with its record', () => {
  const OWNERS: Record<string, { owner: string | undefined; changed: string[] }> = {
    'the user of the run': { owner: 'us', changed: [] },
    'another user': { owner: '4242', changed: ['lib/a'] },
    'nobody, as in records from before owners were recorded': { owner: undefined, changed: [] },
  }
  for (const [name, { owner, changed }] of Object.entries(OWNERS)) {
    it(`finds a file changed only if it had another owner; the record names ${name}`, async t => {
      const { layout, root, identity } = await makeInstalled(t)
      const items = [...(readTreeRecord(layout, identity) ?? [])]
      const owned = items.map(item => (item.path === 'lib/a' ? { ...item, owner } : item))
      const compared = await writeTreeRecord(layout, owned)
      const { removed, ...found } = await compareTree({ root, keepPaths: [] }, readTreeRecord(layout, compared) ?? [])
      assert.deepEqual([removed, found.changed], [[], changed])
    })
  }
})

describe('the description of a modified tree', () => {
  for (const [name, change] of Object.entries(CHANGES)) {
    it(`matches a tree with ${name}, but no longer after a later change`, async t => {
      const { layout, root, describe } = await makeInstalled(t)
      change(root)
      const { items, unread } = await describe()
      assert.deepEqual(unread, [])
      const identity = await writeTreeRecord(layout, items)
      const tree = { root, keepPaths: ['data'] }
      const compare = async () => await compareTree(tree, readTreeRecord(layout, identity) ?? [])
      const { removed, changed } = await compare()
      assert.deepEqual([removed, changed], [[], []])
      writeFileSync(join(root, 'bin/run'), 'something else')
      assert.deepEqual((await compare()).changed, ['bin/run'])
    })
  }

  for (const [name, add] of Object.entries(ADDED))
    it(`is that of the installed files, whatever was added: ${name}`, async t => {
      const { root, describe } = await makeInstalled(t)
      add(root)
      const { items } = await describe()
      assert.equal(digestOfItems(items), digestOfItems(itemsOf(treeOf(FILES), [])))
    })

  it('has the digest of the actual files, without kept paths', async t => {
    const { root, describe } = await makeInstalled(t)
    writeTree(root, { 'lib/a': 'b', 'data/db': 'rows' })
    const expected = treeOf({ ...FILES, 'lib/a': 'b' })
    assert.equal(digestOfItems((await describe()).items), digestOfItems(itemsOf(expected, [])))
  })

  it('names an installed file that has grown to a terabyte, reads little, and notices a later change', async t => {
    const { layout, root, describe } = await makeInstalled(t)
    truncateSync(join(root, 'lib/a'), 2 ** 40)
    await timesMoveOn(layout.own)
    const { items, unread } = await describe()
    assert.deepEqual(unread, ['lib/a (1100 GB: the changed files have more than 268 MB)'])
    const identity = await writeTreeRecord(layout, items)
    const compare = async () =>
      await compareRecorded(layout, { root, keepPaths: ['data'], identity }, { byContent: true })
    assert.deepEqual(await compare(), { added: [], removed: [], changed: [] })
    chmodSync(join(root, 'lib/a'), 0o644)
    assert.deepEqual((await compare())?.changed, ['lib/a'])
  })
})

async function makeInstalled(t: TestContext) {
  const layout = await prepareTemporaryHost(t)
  const { root, ...identity } = await installRecorded(layout, FILES)
  const describe = async () => await describeTree({ root, keepPaths: ['data'] }, readTreeRecord(layout, identity) ?? [])
  return { layout, root, identity, describe }
}

const write = (root: string, paths: readonly string[]): void =>
  writeTree(root, Object.fromEntries(paths.map(path => [path, path])))

const RECORDED = ['lib/__pycache__/shipped.pyc', 'src/main.py']

function strayIn(root: string, keepPaths: readonly string[] = []): Promise<string[] | undefined> {
  const record = RECORDED.map(path => ({
    path,
    kind: '644',
    content: String(path.length),
    sha256: '',
    stamp: undefined,
  }))
  return findStrayCaches({ root, keepPaths }, record)
}

it('names unrecorded caches as a whole, and single files next to recorded ones', async t => {
  const root = temporaryDirectory(t)
  write(root, [...RECORDED, 'lib/__pycache__/evil.pyc', 'lib/__pycache__/in/evil.so', '__pycache__/__pycache__/x.pyc'])
  write(root, ['src/__pycache__/a.pyc', 'src/__pycache__/b.pyc', 'src/more.py'])
  assert.deepEqual(await strayIn(root), [
    '__pycache__',
    'lib/__pycache__/evil.pyc',
    'lib/__pycache__/in/evil.so',
    'src/__pycache__',
  ])
})

it('leaves the files of the host in a cache alone', async t => {
  const root = temporaryDirectory(t)
  write(root, [...RECORDED, 'src/__pycache__/own/rows', 'src/__pycache__/evil.pyc', 'data/__pycache__/rows'])
  assert.deepEqual(await strayIn(root, ['data', 'src/__pycache__/own']), ['src/__pycache__/evil.pyc'])
})

it('lists nothing if there are more than 2,000 paths', async t => {
  const root = temporaryDirectory(t)
  write(root, [...RECORDED, ...Array.from({ length: 2001 }, (_, index) => `lib/__pycache__/${index}.pyc`)])
  assert.equal(await strayIn(root), undefined)
})

const keepPaths = ['data']

/** Scans a tree, changes and moves it. Resolves to true if the tree still has the stamps that the scan found. */
async function areSame(t: TestContext, change: (root: string) => void): Promise<boolean> {
  const folder = temporaryDirectory(t)
  const [root, moved] = [join(folder, 'tree'), join(folder, 'moved')]
  writeTree(root, { main: 'm', 'lib/a': '1', 'lib/deep/b': '2', 'data/db': 'rows' })
  mkdirSync(join(root, 'logs'))
  symlinkSync('main', join(root, 'link'))
  await timesMoveOn(root)
  const stamps = new TreeStamps()
  const onStamp = (path: string, stamp: string): void => stamps.see(path, stamp)
  assert.ok([...scanTree(root, { isLeftOut: isBelow(keepPaths), onStamp })].length > 0)
  change(root)
  renameSync(root, moved)
  return await stamps.areThoseOf({ root: moved, keepPaths }, new AbortController().signal)
}

const STAMPED_CHANGES: Record<string, (root: string) => void> = {
  'another byte in a file': root => writeFileSync(join(root, 'lib/a'), '9'),
  'another byte, with the old modification time': root => {
    rewriteKeepingTime(join(root, 'lib/a'), '9')
  },
  'another mode': root => chmodSync(join(root, 'lib/deep/b'), 0o755),
  'a file in the root': root => writeFileSync(join(root, 'new'), ''),
  'a file in a directory that was empty': root => writeFileSync(join(root, 'logs/new'), ''),
  'a removed file': root => unlinkSync(join(root, 'main')),
  'a removed directory': root => rmSync(join(root, 'lib'), { recursive: true }),
  'a symlink to elsewhere': root => {
    unlinkSync(join(root, 'link'))
    symlinkSync('/etc/passwd', join(root, 'link'))
  },
  'a symlink in place of the tree': root => {
    renameSync(root, `${root}-elsewhere`)
    symlinkSync(`${root}-elsewhere`, root)
  },
}

describe('the stamps of a tree', () => {
  for (const [name, change] of Object.entries(STAMPED_CHANGES))
    it(`differ after a change: ${name}`, async t => assert.equal(await areSame(t, change), false))

  it('are the same in a tree that was only moved, even if a kept path was moved out of it', async t => {
    assert.equal(await areSame(t, () => {}), true)
    assert.equal(await areSame(t, root => renameSync(join(root, 'data'), `${root}-data`)), true)
  })
})

describe('describeTree', () => {
  it('names a changed file that cannot be read, and describes the others', async t => {
    const root = temporaryDirectory(t)
    writeTree(root, { a: 'new', b: 'new' })
    failOpen(t, join(root, 'a'), { code: 'EACCES' })
    const record = ['a', 'b'].map(path => ({ path, kind: '644', content: '3', sha256: 'c'.repeat(64), stamp: '1 1 1' }))
    const { items, unread } = await describeTree({ root, keepPaths: [] }, record)
    assert.deepEqual(unread, ['a (EACCES)'])
    assert.equal(items.find(({ path }) => path === 'b')?.sha256, hash('sha256', 'new'))
  })
})
