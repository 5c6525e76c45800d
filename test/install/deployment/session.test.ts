import assert from 'node:assert/strict'
import { existsSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { type HostSession, openHostSession } from '../../../src/install/deployment/session.ts'
import type { Layout } from '../../../src/install/host/layout.ts'
import { createDeploymentRecord } from '../../../src/install/transaction/record.ts'
import { collectLog } from '../collected-log.ts'
import { factsOf, NO_REDACTION, prepareTemporaryHost, type RecordingSender, senderThat } from '../prepared-host.ts'
import { writeTree } from '../temporary-directory.ts'

interface Scene {
  layout: Layout
  sender: RecordingSender
  lockedCalls: () => number
  open(): Promise<HostSession>
}

async function makeScene(t: TestContext): Promise<Scene> {
  const layout = await prepareTemporaryHost(t)
  const sender = senderThat({ accepted: true, attempts: 1 })
  const host = { layout, log: collectLog(), redact: NO_REDACTION, sender, reportTimeoutMs: () => 10_000 }
  let calls = 0
  const onLocked = (): void => void calls++
  const open = () =>
    openHostSession({ host, lockTimeoutMs: 0, runUrl: null, signal: new AbortController().signal, onLocked })
  return { layout, sender, lockedCalls: () => calls, open }
}

function newRecord() {
  return createDeploymentRecord(factsOf(), [{ state: 'pending', at: factsOf().started_at }])
}

describe('openHostSession', () => {
  it('holds the host until it is released', async t => {
    const scene = await makeScene(t)
    const session = await scene.open()
    assert.equal(scene.lockedCalls(), 1)
    await assert.rejects(scene.open(), { code: 'locked' })
    session.release()
    const next = await scene.open()
    next.release()
  })

  it('gives the host back when it cannot recover it', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.layout.journal, '{\n')
    for (let time = 0; time < 2; time++) {
      await assert.rejects(scene.open(), error => error instanceof DeploymentError && error.code === 'inconsistent')
      assert.ok(!existsSync(scene.layout.lock))
    }
  })

  it('takes back what a run that died left, in its name, before anything new', async t => {
    const scene = await makeScene(t)
    writeTree(scene.layout.root, { 'plugins/greeter/main': 'old' })
    const dead = await scene.open()
    const { transaction, stagingFolder, abandon } = await dead.begin(newRecord(), [])
    await transaction.apply({ type: 'move', from: 'plugins/greeter', to: '.hub-deploy/snapshots/greeter' })
    abandon()
    dead.release()
    const session = await scene.open()
    assert.ok(existsSync(join(scene.layout.root, 'plugins/greeter/main')))
    assert.ok(!existsSync(stagingFolder))
    assert.deepEqual(
      scene.sender.sent.map(({ report }) => report.outcome),
      ['rolled_back'],
    )
    session.release()
  })
})

describe('OpenDeployment', () => {
  it('leaves nothing to recover once it is settled', async t => {
    const scene = await makeScene(t)
    const session = await scene.open()
    const deployment = await session.begin(newRecord(), [])
    assert.ok(existsSync(scene.layout.journal))
    writeTree(deployment.stagingFolder, { 'tree/main': 'new' })
    await deployment.settle()
    session.release()
    assert.ok(!existsSync(scene.layout.journal))
    assert.deepEqual(readdirSync(scene.layout.staging), [])
    assert.deepEqual(scene.sender.sent, [])
  })
})
