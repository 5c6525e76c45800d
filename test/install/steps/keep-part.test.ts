import assert from 'node:assert/strict'
import { linkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { keepPart } from '../../../src/install/steps/keep-part.ts'
import { GREETER, installRecorded } from '../host/trees/recorded-tree.ts'
import { contextOf, deploymentOf, partOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost } from '../prepared-host.ts'

describe('keepPart', () => {
  for (const [count, more] of [
    [0, ''],
    [2, '; 2 files were added on this host'],
    [10_001, '; at least 10,000 files were added on this host'],
  ] as const)
    it(`counts the files that were added to the part: ${count}`, async t => {
      const layout = await prepareTemporaryHost(t)
      const { root, tree_record } = await installRecorded(layout, { 'main.py': 'x' })
      if (count > 0) writeFileSync(join(root, '0'), '')
      // Links one file many times: creating as many files takes ten times as long.
      for (let index = 1; index < count; index++) linkSync(join(root, '0'), join(root, String(index)))
      const context = await contextOf(t, deploymentOf(layout))
      const { staged: _, tree: __, ...facts } = partOf(layout, { ...GREETER, directory: 'plugins' })
      const intact = { tree_digest: null, tree_record }
      const { status, story } = await keepPart(context, { ...facts, intact })
      assert.deepEqual([status, story], ['unchanged', `plugins/greeter is already 2.0.0 with these files${more}`])
      assert.deepEqual(context.results.get('plugins/greeter'), { tree: intact })
    })
})
