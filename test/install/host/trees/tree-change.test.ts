import assert from 'node:assert/strict'
import { truncateSync } from 'node:fs'
import { describe, it, type TestContext } from 'node:test'
import { type Layout, treeRecordPath } from '../../../../src/install/host/layout.ts'
import { openTreeRecord } from '../../../../src/install/host/trees/record/read-tree-record.ts'
import type { RecordedItem } from '../../../../src/install/host/trees/record/recorded-item.ts'
import type { RecordedTree } from '../../../../src/install/host/trees/record/tree-identity.ts'
import { writeTreeRecord } from '../../../../src/install/host/trees/record/write-tree-record.ts'
import { TreeChange } from '../../../../src/install/host/trees/tree-change.ts'
import type { TreeDifference } from '../../../../src/install/host/trees/tree-comparison.ts'
import { prepareTemporaryHost } from '../../prepared-host.ts'

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
    it(`counts while the items pass: ${words}`, async t => {
      const { layout, tree } = await recorded(t, OLD)
      const change = new TreeChange(layout, tree)
      assert.deepEqual([...change.count(itemsOf(files))], itemsOf(files))
      assert.equal(change.inWords(), words)
    })

  const edits = {
    '1 edited file restored': [OLD, { changed: ['b'] }],
    '3 edited files restored': [OLD, { changed: ['b'], removed: ['a'], added: ['z'] }],
    '2 files changed': [{ ...OLD, b: '2' }, { changed: ['a', 'b'] }],
    '1 file changed, 1 added': [
      { ...OLD, b: '2', z: '1' },
      { removed: ['b'], added: ['z'] },
    ],
    '3 files removed': [{ a: '1', b: '1' }, { added: ['z'] }],
    '1 file removed': [{ a: '1', b: '1', f: '1' }, { changed: ['d/e'] }],
    '4 files added': [OLD, { removed: Object.keys(OLD), instead: 'file' }],
    '4 files': [OLD, { added: Array.from({ length: 201 }, (_, index) => `x${index}`) }],
  } as const
  for (const [words, [files, drift]] of Object.entries(edits))
    it(`counts what was edited on the host: ${words}`, async t => {
      const { layout, tree } = await recorded(t, OLD)
      const change = new TreeChange(layout, tree)
      const next = await writeTreeRecord(layout, change.count(itemsOf(files)))
      const [before, after] = [openTreeRecord(layout, tree), openTreeRecord(layout, next)]
      assert.ok(before !== undefined && after !== undefined)
      const none: TreeDifference = { added: [], removed: [], changed: [] }
      change.correct({ ...none, ...(structuredClone(drift) as Partial<TreeDifference>) }, before, after)
      assert.equal(change.inWords(), words)
    })

  it('counts the files of a first install', async t => {
    const change = new TreeChange(await prepareTemporaryHost(t), undefined)
    assert.deepEqual([...change.count(itemsOf(OLD))].length, 4)
    assert.equal(change.inWords(), '4 files')
  })

  it('counts only the new files where the record of the old ones is damaged, and fails nothing', async t => {
    const { layout, tree } = await recorded(t, OLD)
    truncateSync(treeRecordPath(layout, tree.tree_record), 100)
    const change = new TreeChange(layout, tree)
    assert.equal([...change.count(itemsOf({ a: '2' }))].length, 1)
    assert.equal(change.inWords(), '1 file')
  })
})
