import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import type { Place } from '../../../src/install/host/layout.ts'
import { buildInstallation, describeSnapshots, findReplaced } from '../../../src/install/run/installation.ts'
import { writeTree } from '../../folders.ts'
import { contextOf, deploymentOf, partOf } from '../prepared-deployment.ts'
import { collectLog, prepareTemporaryHost, rowOf, snapshotOf } from '../prepared-host.ts'

describe('buildInstallation', () => {
  it('decides which snapshots stay, and reports none as removed before the commit', async t => {
    const layout = await prepareTemporaryHost(t)
    const snapshots = [1, 2, 3].map(n => snapshotOf(`${n}-1.0.${n}`))
    for (const { name } of snapshots)
      writeTree(layout.root, { [`.hub-deploy/snapshots/plugins/greeter/${name}/a`]: '' })
    const log = collectLog()
    const deployment = deploymentOf(layout, { request: { keepSnapshots: 2 }, tools: { log } })
    const place = { shelf: 'plugins', id: 'greeter', directory: 'plugins' } as const
    const removals = [{ ...place, installed: rowOf({ snapshots }) }]
    const installation = await buildInstallation(await contextOf(t, deployment, { removals }))
    assert.deepEqual(installation.discard, ['.hub-deploy/snapshots/plugins/greeter/1-1.0.1'])
    assert.equal(describeSnapshots(installation), '2 snapshots kept, 1 discarded')
    assert.match(log.lines.join('\n'), /Snapshot 1-1\.0\.1 of plugins\/greeter will be removed/)
    assert.deepEqual(
      log.lines.filter(line => line.startsWith('did ')),
      [],
    )
  })

  for (const source of [{ from: 'https://git.example/x', id: 'ab'.repeat(20) }, undefined])
    it(`records ${source === undefined ? 'no source of a part that has none' : 'the source of a part'}`, async t => {
      const layout = await prepareTemporaryHost(t)
      const parts = [partOf(layout, source && { source })]
      const { rows } = await buildInstallation(await contextOf(t, deploymentOf(layout), { parts }))
      assert.deepEqual(
        rows.map(row => row.source),
        [source],
      )
    })
})

const PLACE: Place = { shelf: 'plugins', id: 'x', directory: 'plugins' }
const RESTORED = 'these files stay there, and return when you restore the snapshot'

describe('findReplaced', () => {
  it('describes the replaced version, with its source and its origin if that is another one', async t => {
    const context = await contextOf(t, deploymentOf(await prepareTemporaryHost(t)))
    context.results.set('plugins/x', { snapshot: '1-1.0.0' })
    const source = { from: 'https://git.example/x', id: 'ab'.repeat(20) }
    const installed = rowOf({ id: 'x', version: '1.0.0', contract: 'project', slug: 'shop', source })
    const found = findReplaced(context, { ...PLACE, installed }, installed)
    assert.deepEqual(found?.source, source)
    assert.deepEqual(found?.origin, { contract: 'project', slug: 'shop' })
    assert.deepEqual([found?.name, found?.artifact_sha256], ['1-1.0.0', installed.artifact_sha256])
  })

  it('names the version that somebody put in the place, for which no artifact vouches', async t => {
    const context = await contextOf(t, deploymentOf(await prepareTemporaryHost(t)))
    context.results.set('plugins/x', { snapshot: '1-0.9.0', version: '0.9.0', modified: { tree_digest: null } })
    const installed = rowOf({ id: 'x', version: '1.0.0' })
    const found = findReplaced(context, { ...PLACE, installed }, installed)
    assert.deepEqual([found?.version, found?.artifact_sha256, found?.modified], ['0.9.0', null, true])
  })

  for (const [name, isRemoved, ending] of [
    ['replaced', false, `${RESTORED}.`],
    ['removed', true, `${RESTORED}, or when the part is deployed again.`],
  ] as const) {
    it(`says when the files of this host return from the snapshot of a ${name} part`, async t => {
      const layout = await prepareTemporaryHost(t)
      writeTree(layout.root, { '.hub-deploy/snapshots/plugins/x/1-1.0.0/old/data': 'rows' })
      const log = collectLog()
      const context = await contextOf(t, deploymentOf(layout, { tools: { log } }))
      context.results.set('plugins/x', { snapshot: '1-1.0.0' })
      const installed = rowOf({ id: 'x', version: '1.0.0', keep_paths: ['old'] })
      const part = isRemoved ? { ...PLACE, installed } : partOf(layout)
      assert.deepEqual(findReplaced(context, part, installed)?.kept_paths, ['old'])
      assert.ok(log.lines.some(line => line.endsWith(`of plugins/x contains files of this host (old): ${ending}`)))
    })
  }
})
