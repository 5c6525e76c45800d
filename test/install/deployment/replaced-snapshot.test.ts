import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { findReplaced } from '../../../src/install/deployment/replaced-snapshot.ts'
import type { Place } from '../../../src/install/host/layout.ts'
import { collectLog } from '../collected-log.ts'
import { contextOf, deploymentOf, partOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost, rowOf } from '../prepared-host.ts'
import { writeTree } from '../temporary-directory.ts'

const PLACE: Place = { shelf: 'plugins', id: 'x', directory: 'plugins' }
const RESTORED = 'these files stay there, and return when you restore the snapshot'

describe('findReplaced', () => {
  it('describes the replaced version, with its source and its origin if that is another one', async t => {
    const context = await contextOf(t, deploymentOf(await prepareTemporaryHost(t)))
    context.results.set('plugins/x', { snapshot: '1-1.0.0' })
    const source = { from: 'https://git.example/x', id: 'ab'.repeat(20) }
    const installed = rowOf({ id: 'x', version: '1.0.0', contract: 'project', slug: 'shop', source })
    const found = findReplaced(context, { ...PLACE, installed }, { installed, version: '1.0.0' })
    assert.deepEqual(found?.source, source)
    assert.deepEqual(found?.origin, { contract: 'project', slug: 'shop' })
    assert.deepEqual([found?.name, found?.artifact_sha256], ['1-1.0.0', installed.artifact_sha256])
  })

  for (const [name, isRemoved, ending] of [
    ['replaced', false, `${RESTORED}.`],
    ['removed', true, `${RESTORED}, or when the same project installs the part again.`],
  ] as const) {
    it(`says when the files of this host return from the snapshot of a ${name} part`, async t => {
      const layout = await prepareTemporaryHost(t)
      writeTree(layout.root, { '.hub-deploy/snapshots/plugins/x/1-1.0.0/old/data': 'rows' })
      const log = collectLog()
      const context = await contextOf(t, deploymentOf(layout, { tools: { log } }))
      context.results.set('plugins/x', { snapshot: '1-1.0.0' })
      const installed = rowOf({ id: 'x', version: '1.0.0', keep_paths: ['old'] })
      const part = isRemoved ? { ...PLACE, installed } : partOf(layout)
      assert.deepEqual(findReplaced(context, part, { installed, version: '1.0.0' })?.kept_paths, ['old'])
      assert.ok(log.lines.some(line => line.endsWith(`of plugins/x contains files of this host (old): ${ending}`)))
    })
  }
})
