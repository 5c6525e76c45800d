import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { pruneTreeRecords } from '../../../../../src/install/host/trees/record/prune-tree-records.ts'
import { prepareTemporaryHost } from '../../../prepared-host.ts'

describe('pruneTreeRecords', () => {
  it('removes the records of either kind that no version names, and nothing else', async t => {
    const layout = await prepareTemporaryHost(t)
    const [used, stale] = ['ab'.repeat(32), 'cd'.repeat(32)]
    const names = [used, stale].flatMap(name => [`${name}.json`, `${name}.tree`])
    for (const name of [...names, 'notes.json', 'x.tree']) writeFileSync(join(layout.trees, name), '')
    mkdirSync(join(layout.trees, 'of-somebody'))
    pruneTreeRecords(layout, [{ tree_digest: stale, tree_record: used }, { tree_digest: used }, { tree_digest: null }])
    const left = [`${used}.json`, `${used}.tree`, 'notes.json', 'of-somebody', 'x.tree']
    assert.deepEqual(readdirSync(layout.trees).toSorted(), left)
  })
})
