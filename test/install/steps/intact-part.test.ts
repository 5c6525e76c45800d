import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import { type InstalledRow, recordInstalled } from '../../../src/install/host/installed.ts'
import { installPath, type Place } from '../../../src/install/host/layout.ts'
import { keepPart } from '../../../src/install/steps/install-part.ts'
import { keepIfIntact } from '../../../src/install/steps/intact-part.ts'
import type { PartTree } from '../../../src/install/steps/part.ts'
import { recordTreeAt, treeOf, writeTreeOf } from '../host/recorded-tree.ts'
import { contextOf, deploymentOf, partOf, previousOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost, rowOf } from '../prepared-host.ts'
import { writeTree } from '../temporary-directory.ts'

const PLACE: Place = { shelf: 'plugins', id: 'x' }
const FILES = { main: 'same', 'lib/a': '1' }
const TREE = treeOf(FILES)
const OTHER_ARTIFACT = { artifact_sha256: 'cd'.repeat(32) }

/** What differs from a part whose new tree is installed and intact. */
interface Difference {
  /** On the host. */
  files?: Record<string, string>
  row?: Partial<InstalledRow>
  tree?: PartTree
}

async function judge(t: TestContext, { files = {}, row: more = {}, tree = TREE }: Difference = {}) {
  const layout = await prepareTemporaryHost(t)
  const context = await contextOf(t, deploymentOf(layout, { request: { keepPaths: ['data'] } }))
  const path = installPath(layout, PLACE)
  writeTreeOf(path, FILES)
  const row = rowOf({ id: 'x', ...(await recordTreeAt(layout, path, TREE)), ...more })
  await recordInstalled(layout, { rows: [row], removed: [] })
  writeTree(path, files)
  const part = partOf(layout, { previous: previousOf(PLACE, { installed: row, version: row.version }), tree })
  return { context, row, part: await keepIfIntact(context.deployment, part, context.order.origin) }
}

describe('a part whose new tree is the installed one', () => {
  it('stays when it is intact, whatever else is there', async t => {
    const { context, part, row } = await judge(t, { files: { 'data/db': 'rows', 'log/today': 'x' } })
    assert.ok(part.intact)
    assert.equal(keepPart(context, part), 'unchanged')
    assert.equal(context.transaction.changed, false)
    const { tree_digest, tree_record } = row
    assert.deepEqual(context.results.get('plugins/x'), { tree: { tree_digest, tree_record } })
  })

  it('stays although another artifact contains it', async t => {
    assert.ok((await judge(t, { row: OTHER_ARTIFACT })).part.intact)
  })

  const [first, ...others] = TREE.files
  assert.ok(first)
  const replaced: Record<string, Difference> = {
    'a file was changed': { files: { main: 'changed' } },
    'another origin installed it': { row: { slug: 'other' } },
    'its record is missing': { row: { tree_record: 'cd'.repeat(32) } },
    'the new tree has another file': { tree: treeOf({ ...FILES, more: '' }) },
    'the new tree lacks a file': { tree: treeOf({ main: 'same' }) },
    'the new tree has other bytes': { tree: treeOf({ ...FILES, main: 'else' }) },
    'the new tree has another mode': {
      row: OTHER_ARTIFACT,
      tree: { ...TREE, files: [{ ...first, mode: 0o755 }, ...others] },
    },
    'the new tree has a symlink in place of a file': { tree: treeOf({ 'lib/a': '1' }, { main: 'lib/a' }) },
  }
  for (const [name, difference] of Object.entries(replaced)) {
    it(`is replaced when ${name}`, async t => {
      assert.equal((await judge(t, difference)).part.intact, undefined)
    })
  }
})
