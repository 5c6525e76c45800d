import assert from 'node:assert/strict'
import { truncateSync, writeFileSync } from 'node:fs'
import { describe, it, type TestContext } from 'node:test'
import { earlierRecordPath, type Layout, treeRecordPath } from '../../../../src/install/host/layout.ts'
import { itemsOf as treeItems } from '../../../../src/install/host/trees/record/extracted-items.ts'
import { digestOfItems, type RecordedItem } from '../../../../src/install/host/trees/record/recorded-item.ts'
import type { RecordedTree } from '../../../../src/install/host/trees/record/tree-identity.ts'
import { writeTreeRecord } from '../../../../src/install/host/trees/record/write-tree-record.ts'
import { TreeChange } from '../../../../src/install/host/trees/tree-change.ts'
import type { TreeDifference } from '../../../../src/install/host/trees/tree-comparison.ts'
import { prepareTemporaryHost } from '../../prepared-host.ts'
import { earlierRecordOf, treeOf } from './recorded-tree.ts'

function itemsOf(files: Record<string, string>): RecordedItem[] {
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
  return { layout, tree: await writeTreeRecord(layout, itemsOf(files)) }
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
      assert.deepEqual([...change.count(itemsOf(files))], itemsOf(files))
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
      const next = await writeTreeRecord(layout, change.count(itemsOf(files)))
      const none: TreeDifference = { added: [], removed: [], changed: [] }
      const difference = { ...none, ...(structuredClone(drift) as Partial<TreeDifference>) }
      await change.correct(difference, layout, { before: tree, after: next })
      assert.equal(change.inWords(), words)
    })

  it('counts no file whose mode an earlier version of the action did not record', async t => {
    const layout = await prepareTemporaryHost(t)
    const tree = treeOf(OLD, { link: 'a' })
    const before = { tree_digest: digestOfItems(treeItems(tree, [])) }
    writeFileSync(earlierRecordPath(layout, before.tree_digest), earlierRecordOf(tree))
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
    assert.equal([...change.count(itemsOf(files))].length, 20_000)
    await change.correct({ added: [], removed: [], changed: paths }, layout, { before: tree, after: tree })
    assert.equal(change.inWords(), '20,000 edited files restored')
  })

  it('counts the files of a first install', async t => {
    const change = new TreeChange(await prepareTemporaryHost(t), undefined)
    assert.deepEqual([...change.count(itemsOf(OLD))].length, 4)
    assert.equal(change.inWords(), '4 files')
  })

  it('counts only the new files, without an error, if the record of the old ones is damaged', async t => {
    const { layout, tree } = await recorded(t, OLD)
    truncateSync(treeRecordPath(layout, tree.tree_record), 100)
    const change = new TreeChange(layout, tree)
    assert.equal([...change.count(itemsOf({ a: '2' }))].length, 1)
    assert.equal(change.inWords(), '1 file')
  })
})
