import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { readHostRecord, recordInstalled } from '../../../../src/install/host/installed/host-record.ts'
import type { InstalledRow } from '../../../../src/install/host/installed/rows.ts'
import type { Layout } from '../../../../src/install/host/layout.ts'
import { prepareTemporaryHost, rowOf, snapshotOf } from '../../prepared-host.ts'

describe('the versions of a project', () => {
  const trees = ['a', 'b', 'c'].map(digit => digit.repeat(64))
  const version = (name: string, tree_digest = trees[0] ?? null) => {
    const { contract: _, slug: __, snapshots: ___, ...part } = rowOf({ tree_digest, project_version: name })
    return { slug: 'shop', version: name, parts: [part] }
  }
  const rowWith = (tree_digest: string | undefined, snapshots: InstalledRow['snapshots'] = []) =>
    rowOf({ contract: 'project', slug: 'shop', tree_digest: tree_digest ?? null, snapshots })
  const versionsIn = (layout: Layout) => readHostRecord(layout).projects.map(project => project.version)

  it('stay listed, the newest last, while all their parts, or a snapshot recorded with that version, are retained', async t => {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, { rows: [rowWith(trees[0])], removed: [], project: version('1.0.0') })
    await recordInstalled(layout, { rows: [rowWith(trees[0])], removed: [], project: version('1.0.1') })
    assert.deepEqual(versionsIn(layout), ['1.0.0', '1.0.1'])
    await recordInstalled(layout, { rows: [rowWith(trees[0])], removed: [], project: version('1.0.0') })
    assert.deepEqual(versionsIn(layout), ['1.0.1', '1.0.0'])
    const left = snapshotOf('1-1.0.0', { tree_digest: trees[2] ?? null, project_version: '1.0.0' })
    const project = version('2.0.0', trees[1])
    await recordInstalled(layout, { rows: [rowWith(trees[1], [left])], removed: [], project })
    assert.deepEqual(versionsIn(layout), ['1.0.0', '2.0.0'])
    await recordInstalled(layout, { rows: [rowWith(trees[1])], removed: [], project })
    assert.deepEqual(versionsIn(layout), ['2.0.0'])
  })

  it('are listed once for each set of trees, as long as all trees of an earlier set are retained', async t => {
    const layout = await prepareTemporaryHost(t)
    const treesIn = () => readHostRecord(layout).projects.map(({ parts }) => parts[0]?.tree_digest)
    const [a, b] = [trees[0] ?? '', trees[1] ?? '']
    const left = snapshotOf('1-1.0.0', { tree_digest: a, project_version: '1.0.0' })
    await recordInstalled(layout, { rows: [rowWith(a)], removed: [], project: version('1.0.0', a) })
    for (const _ of [1, 2]) {
      await recordInstalled(layout, { rows: [rowWith(b, [left])], removed: [], project: version('1.0.0', b) })
      assert.deepEqual(treesIn(), [a, b])
    }
    const other = snapshotOf('2-1.0.0', { tree_digest: b, project_version: '1.0.0' })
    await recordInstalled(layout, { rows: [rowWith(a, [other])], removed: [], project: version('1.0.0', a) })
    assert.deepEqual(treesIn(), [b, a])
    const unlike = snapshotOf('3-1.0.0', { tree_digest: trees[2] ?? '', project_version: '1.0.0' })
    await recordInstalled(layout, { rows: [rowWith(a, [unlike])], removed: [], project: version('1.0.0', a) })
    assert.deepEqual(treesIn(), [a])
  })

  it('number at most 20 for each project', async t => {
    const layout = await prepareTemporaryHost(t)
    for (let patch = 0; patch < 22; patch++)
      await recordInstalled(layout, { rows: [rowWith(trees[0])], removed: [], project: version(`1.0.${patch}`) })
    assert.deepEqual([versionsIn(layout).length, versionsIn(layout)[0]], [20, '1.0.2'])
  })
})
