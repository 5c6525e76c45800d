import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { treeRecordPath } from '../../../src/install/host/layout.ts'
import {
  digestOfItems,
  itemsOf,
  openTreeRecord,
  pruneTreeRecords,
  type RecordedItem,
  readTreeRecord,
  stagedItems,
  TreeRecordDamage,
  writeTreeRecord,
} from '../../../src/install/trees/record.ts'
import { isOpen, temporaryDirectory } from '../../folders.ts'
import { prepareTemporaryHost } from '../prepared-host.ts'
import { recordTreeAt, treeOf, writeTreeOf } from './recorded-tree.ts'

const FILES = { 'bin/run': '#!/bin/sh\n', 'lib/a': 'a', lib2: '2' }
const SYMLINKS = { run: 'bin/run', 'lib/b': 'a' }
const TREE_DIGEST = digestOfItems(itemsOf(treeOf(FILES, SYMLINKS), []))
const UNKNOWN = 'ab'.repeat(32)

describe('a tree record', () => {
  it('is read as it was written, with the tree digest, under the digest of its own text', async t => {
    const { layout, root, tree } = await makeStaged(t)
    const identity = await recordTreeAt(layout, root, tree)
    const text = readFileSync(treeRecordPath(layout, identity.tree_record))
    assert.equal(identity.tree_record, hash('sha256', text))
    assert.equal(identity.tree_digest, TREE_DIGEST)
    const read = readItems(layout, identity)
    assert.deepEqual(read.map(withoutStamp), [...itemsOf(tree, [])].map(withoutStamp))
  })

  it('is closed when it was read, when the reading stops early, and when it is damaged', async t => {
    const { layout, root, tree } = await makeStaged(t)
    const identity = await recordTreeAt(layout, root, tree)
    const path = treeRecordPath(layout, identity.tree_record)
    assert.equal(isOpen(path), false)
    readItems(layout, identity)
    assert.equal(isOpen(path), false)
    for (const _ of readTreeRecord(layout, identity) ?? []) {
      assert.equal(isOpen(path), true)
      break
    }
    assert.equal(isOpen(path), false)
    assert.ok(openTreeRecord(layout, identity)?.('lib/a'))
    assert.equal(isOpen(path), false)
    truncateSync(path, 10)
    assert.throws(() => readItems(layout, identity), TreeRecordDamage)
    assert.throws(() => openTreeRecord(layout, identity), TreeRecordDamage)
    assert.equal(isOpen(path), false)
  })

  it('is undefined when missing', async t => {
    const { layout } = await makeStaged(t)
    assert.equal(readTreeRecord(layout, { tree_digest: UNKNOWN, tree_record: UNKNOWN }), undefined)
    assert.equal(readTreeRecord(layout, { tree_digest: UNKNOWN }), undefined)
    assert.equal(readTreeRecord(layout, { tree_digest: null }), undefined)
  })

  it('belongs to one tree: a copy of the tree in another place has its own record', async t => {
    const { layout, root, tree } = await makeStaged(t)
    const other = temporaryDirectory(t)
    writeTreeOf(other, FILES, SYMLINKS)
    const [first, second] = [await recordTreeAt(layout, root, tree), await recordTreeAt(layout, other, tree)]
    assert.equal(first.tree_digest, second.tree_digest)
    assert.notEqual(first.tree_record, second.tree_record)
  })

  it('stays valid when the tree is moved', async t => {
    const { layout, root, tree } = await makeStaged(t)
    const before = [...stagedItems({ tree, staged: root }, [])]
    renameSync(root, `${root}-moved`)
    assert.deepEqual([...stagedItems({ tree, staged: `${root}-moved` }, [])], before)
    renameSync(`${root}-moved`, root)
    assert.ok(before.every(({ stamp }) => stamp !== undefined))
    assert.ok(layout.trees)
  })

  it('can contain any path and target that a host can have', async t => {
    const layout = await prepareTemporaryHost(t)
    const odd = ['"quoted"', '\u0001', 'line\nfeed', 'tab\there', '\u{1f600}']
    const items: RecordedItem[] = odd.toSorted().map(path => ({ ...LINK, path, content: path }))
    assert.deepEqual(readItems(layout, await writeTreeRecord(layout, items)), items)
  })

  it('is searched for any item, without finding another path that contains the same text', async t => {
    const layout = await prepareTemporaryHost(t)
    const paths = ['"quoted"', 'a/main', 'main', 'main.py', 'tab\there', 'x/main'].toSorted()
    const items: RecordedItem[] = paths.map(path => ({ ...LINK, path, content: 'main' }))
    const identity = await writeTreeRecord(layout, items)
    const find = openTreeRecord(layout, identity)
    assert.deepEqual(
      paths.map(path => find?.(path)),
      items,
    )
    assert.deepEqual(
      ['ain', 'here', 'x', ''].map(path => find?.(path)),
      [undefined, undefined, undefined, undefined],
    )
  })

  it('does not rely on the times of files that changed while it was written', async t => {
    const { layout, root, tree } = await makeStaged(t)
    const [item] = [...stagedItems({ tree, staged: root }, [])]
    const [inode, modified] = item?.stamp?.split('\t') ?? []
    const late = { ...item, stamp: `${inode}\t${modified}\t9999999999999999999` } as RecordedItem
    const [read] = readItems(layout, await writeTreeRecord(layout, [late]))
    assert.equal(read?.stamp, undefined)
  })

  it('leaves no file when it cannot be written', async t => {
    const { layout } = await makeStaged(t)
    const broken = function* (): Generator<RecordedItem> {
      yield { ...LINK, path: 'a' }
      throw new Error('a bad disk')
    }
    await assert.rejects(writeTreeRecord(layout, broken()), /a bad disk/)
    await assert.rejects(writeTreeRecord(layout, many(), AbortSignal.abort(new Error('cancelled'))), /cancelled/)
    assert.deepEqual(readdirSync(layout.trees), [])
  })

  const damages: Record<string, (text: string) => string> = {
    'is empty': () => '',
    'is cut': text => text.slice(0, -1),
    'lacks a line': text => text.slice(text.indexOf('\n') + 1),
    'has NUL bytes': text => text.replaceAll(/./g, '\0'),
    'has a repeated line': text => text.replace(/^.*\n/, line => line + line),
    'has lines in another order': text => `${text.trimEnd().split('\n').toReversed().join('\n')}\n`,
    'has another name': text => text.replace('lib/a', 'lib/A'),
    'has other bytes': text => text.replace(/^./, found => (found === '0' ? '1' : '0')),
    'has a path that leaves the tree': text => text.replace('lib/a', '../b'),
    'has an absolute path': text => text.replace('\tlib/a', '\t/etc'),
    'has another mode': text => text.replace('\t644\t', '\t4755\t'),
    'has a malformed time': text => text.replace(/\t644\t(\d+)\t\d+/, '\t644\t$1\tx'),
    'has a path without its closing quote': text => text.replace('\tlib2', '\t"5'),
  }
  for (const [name, damage] of Object.entries(damages)) {
    it(`is damaged when it ${name}`, async t => {
      const { layout, root, tree } = await makeStaged(t)
      const identity = await recordTreeAt(layout, root, tree)
      const path = treeRecordPath(layout, identity.tree_record)
      const text = readFileSync(path, 'utf8')
      assert.notEqual(damage(text), text)
      writeFileSync(path, damage(text))
      assert.throws(() => readItems(layout, identity), TreeRecordDamage)
      assert.throws(() => openTreeRecord(layout, identity), TreeRecordDamage)
    })
  }

  for (const bytes of [1024 ** 2, 3 * 1024 ** 3])
    it(`is not read as a whole if it has no line within ${bytes} bytes`, async t => {
      const { layout, root, tree } = await makeStaged(t)
      const identity = await recordTreeAt(layout, root, tree)
      truncateSync(treeRecordPath(layout, identity.tree_record), bytes)
      assert.throws(() => readItems(layout, identity), { name: 'TreeRecordDamage' })
      assert.throws(() => openTreeRecord(layout, identity), { name: 'TreeRecordDamage' })
    })

  const obstacles: Record<string, (path: string) => void> = {
    'a directory': path => mkdirSync(path),
    'a symlink to a genuine record': path => {
      renameSync(path, `${path}-real`)
      symlinkSync(`${path}-real`, path)
    },
    'a dangling symlink': path => symlinkSync('nowhere', path),
  }
  for (const [name, put] of Object.entries(obstacles)) {
    it(`is not read through ${name}`, async t => {
      const { layout, root, tree } = await makeStaged(t)
      const identity = await recordTreeAt(layout, root, tree)
      const path = treeRecordPath(layout, identity.tree_record)
      if (name !== 'a symlink to a genuine record') rmSync(path)
      put(path)
      const expected = name.includes('symlink') ? { code: 'ELOOP' } : { name: 'TreeRecordDamage' }
      assert.throws(() => readItems(layout, identity), expected)
    })
  }
})

const LINK = { kind: 'link', content: 'x', sha256: undefined, stamp: undefined, owner: undefined }

function* many(): Generator<RecordedItem> {
  for (let index = 0; ; index++) yield { ...LINK, path: String(index).padStart(20, '0') }
}

function withoutStamp({ stamp: _, owner: __, ...item }: RecordedItem): Omit<RecordedItem, 'stamp' | 'owner'> {
  return item
}

function readItems(...[layout, identity]: Parameters<typeof readTreeRecord>): RecordedItem[] {
  return [...(readTreeRecord(layout, identity) ?? assert.fail('there is no record'))]
}

async function makeStaged(t: TestContext) {
  const layout = await prepareTemporaryHost(t)
  const root = join(temporaryDirectory(t), 'tree')
  mkdirSync(root)
  writeTreeOf(root, FILES, SYMLINKS)
  return { layout, root, tree: treeOf(FILES, SYMLINKS) }
}

/** The vector of test/core/trust/tree-digest.test.ts, computed independently of this repository's code. */
const VECTOR = '018a3ab6a2623474b61c3ece5f04bf7c3138394d105d6c198e431825872f4597'

describe('the items of a tree', () => {
  it("count a symlink to a file with its target's bytes, as the known digest shows", () => {
    assert.equal(digestOf({ 'bin/run': '#!/bin/sh\n' }, { run: 'bin/run' }), VECTOR)
  })

  it('resolve a symlink from its own directory, and leave a symlink to a directory out of the digest', () => {
    const plain = digestOf({ 'bin/run': 'x', 'lib/link': 'x' })
    assert.equal(digestOf({ 'bin/run': 'x' }, { 'lib/link': '../bin/run' }), plain)
    assert.equal(digestOf({ 'bin/run': 'x' }, { all: 'bin' }), digestOf({ 'bin/run': 'x' }))
  })

  it('leave out everything below a keep-path, and nothing that merely begins like one', () => {
    const tree = treeOf({ 'data/db': '1', data2: '2', 'x/data/db': '3' }, { '.env': 'data2' })
    assert.deepEqual(
      [...itemsOf(tree, ['data', '.env'])].map(({ path }) => path),
      ['data2', 'x/data/db'],
    )
  })

  it('come in the order of the tree digest, symlinks among the files', () => {
    const tree = treeOf({ 'z.py': '', 'a.txt': '', 'a/b': '' }, { m: 'z.py', 'a/a': 'b' })
    assert.deepEqual(
      [...itemsOf(tree, [])].map(({ path }) => path),
      ['a/a', 'a/b', 'a.txt', 'm', 'z.py'],
    )
  })
})

function digestOf(...[files, symlinks = {}, keepPaths = []]: [object, object?, string[]?]): string {
  return digestOfItems(itemsOf(treeOf(files as Record<string, string>, symlinks as Record<string, string>), keepPaths))
}

describe('pruneTreeRecords', () => {
  it('removes the records that no version names, and nothing else', async t => {
    const layout = await prepareTemporaryHost(t)
    const [used, stale] = ['ab'.repeat(32), 'cd'.repeat(32)]
    for (const name of [`${used}.tree`, `${stale}.tree`, 'notes.json', 'x.tree'])
      writeFileSync(join(layout.trees, name), '')
    mkdirSync(join(layout.trees, 'of-somebody'))
    pruneTreeRecords(layout, [{ tree_digest: stale, tree_record: used }, { tree_digest: null }])
    const left = [`${used}.tree`, 'notes.json', 'of-somebody', 'x.tree']
    assert.deepEqual(readdirSync(layout.trees).toSorted(), left)
  })
})
