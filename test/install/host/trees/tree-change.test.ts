import assert from 'node:assert/strict'
import { truncateSync } from 'node:fs'
import { describe, it, type TestContext } from 'node:test'
import { type Layout, treeRecordPath } from '../../../../src/install/host/layout.ts'
import { TreeChange } from '../../../../src/install/host/trees/tree-change.ts'
import {
  type RecordedItem,
  type RecordedTree,
  writeTreeRecord,
} from '../../../../src/install/host/trees/tree-record.ts'
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
