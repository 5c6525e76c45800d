import assert from 'node:assert/strict'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { type Place, snapshotsPath } from '../../../src/install/host/layout.ts'
import type { RetainedPart } from '../../../src/install/steps/context.ts'
import { keepReplaced, takeSnapshot } from '../../../src/install/steps/snapshot.ts'
import type { Transaction } from '../../../src/install/transaction/transaction.ts'
import { writeTree } from '../../folders.ts'
import { contextOf, deploymentOf, partOf, previousOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost, snapshotOf } from '../prepared-host.ts'
import { recordTreeAt, treeOf, writeTreeOf } from '../trees/recorded-tree.ts'

const PLACE: Place = { shelf: 'plugins', id: 'x', directory: 'plugins' }
const NAME = '1-1.0.0'
const TOO_MANY = 2001

describe('takeSnapshot', () => {
  it('names the snapshot, not the staged tree, if bytecode caches are added just after the move', async t => {
    const layout = await prepareTemporaryHost(t)
    const [snapshot, files] = [join(snapshotsPath(layout, PLACE), NAME), { '__pycache__/main.pyc': '1' }]
    writeTreeOf(snapshot, files)
    const retained = snapshotOf(NAME, await recordTreeAt(layout, snapshot, treeOf(files)))
    const { staged: _, tree: __, ...facts } = partOf(layout, { previous: previousOf() })
    const part: RetainedPart = { ...facts, retained, returning: retained, keepPaths: [] }
    const context = await contextOf(t, deploymentOf(layout))
    const transaction: Transaction = {
      ...context.transaction,
      async apply(changes) {
        await context.transaction.apply(changes)
        const caches = join(context.stagingFolder, 'restored/plugins/x/__pycache__')
        for (let index = 0; index < TOO_MANY; index++) writeFileSync(join(caches, `${index}.pyc`), '')
      },
    }
    await assert.rejects(takeSnapshot({ ...context, transaction }, part), ({ code, message }) => {
      assert.equal(code, 'snapshot_modified')
      assert.ok(message.startsWith(`${snapshot} has too many bytecode caches `), message)
      return true
    })
  })
})

describe('keepReplaced', () => {
  it("does not lose a snapshot's copy of a kept path if the replaced version has been removed meanwhile", async t => {
    const layout = await prepareTemporaryHost(t)
    const [snapshot, files] = [join(snapshotsPath(layout, PLACE), NAME), { main: '1' }]
    writeTreeOf(snapshot, files)
    const retained = snapshotOf(NAME, await recordTreeAt(layout, snapshot, treeOf(files)))
    writeTree(snapshot, { 'data/db': 'older rows' })
    writeTree(layout.root, { 'plugins/x/data/db': 'rows' })
    const { staged: _, tree: __, ...facts } = partOf(layout, { previous: previousOf() })
    const part: RetainedPart = { ...facts, retained, returning: retained, keepPaths: ['data'] }
    const context = await contextOf(t, deploymentOf(layout, { request: { keepPaths: ['data'] } }))
    const returning = await takeSnapshot(context, part)
    rmSync(join(layout.root, 'plugins/x'), { recursive: true })
    await assert.rejects(keepReplaced(context, returning), { code: 'step_failed' })
    await context.transaction.undo()
    assert.equal(readFileSync(join(snapshot, 'data/db'), 'utf8'), 'older rows')
  })
})
