import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { buildInstallation, describeSnapshots } from '../../../src/install/deployment/installation.ts'
import { collectLog } from '../collected-log.ts'
import { contextOf, deploymentOf, partOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost, rowOf, snapshotOf } from '../prepared-host.ts'
import { writeTree } from '../temporary-directory.ts'

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
