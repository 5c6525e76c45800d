import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { type DeploymentStart, startDeployment } from '../../../src/install/deployment/deployment.ts'
import { type LockedHost, lockHost } from '../../../src/install/deployment/session.ts'
import type { Layout } from '../../../src/install/host/layout.ts'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import { readJournal } from '../../../src/install/transaction/journal.ts'
import { type DeployState, MARKETPLACE_TRANSITIONS } from '../../../src/marketplace/states.ts'
import { requestOf, toolsOf } from '../prepared-deployment.ts'
import { factsOf, prepareTemporaryHost, type RecordingSender, senderThat } from '../prepared-host.ts'
import { writeTree } from '../temporary-directory.ts'

const SNAPSHOT = '.hub-deploy/snapshots/plugins/greeter/1-1.0.0'

interface Scene {
  layout: Layout
  sender: RecordingSender
  /** What the observer heard when the host was locked, each time. */
  interrupted: LocalReport[]
  lock(): Promise<LockedHost>
}

async function makeScene(t: TestContext): Promise<Scene> {
  const layout = await prepareTemporaryHost(t)
  const sender = senderThat({ accepted: true, attempts: 1 })
  const interrupted: LocalReport[] = []
  const observer = {
    onLocked: (report: LocalReport) => void interrupted.push(report),
    onProgress: () => {},
    onEnded: () => {},
  }
  const start: DeploymentStart<DeployState> = { transitions: MARKETPLACE_TRANSITIONS, facts: factsOf(), sender }
  const request = requestOf(layout, { keepPaths: ['data'] })
  const lock = async () => await lockHost(startDeployment(request, toolsOf({ observer }), start))
  return { layout, sender, interrupted, lock }
}

describe('lockHost', () => {
  it('locks the host until it is released', async t => {
    const scene = await makeScene(t)
    const locked = await scene.lock()
    assert.equal(scene.interrupted.length, 1)
    assert.equal(scene.interrupted[0]?.outcome, 'interrupted')
    await assert.rejects(scene.lock(), { code: 'locked' })
    await locked.release()
    const next = await scene.lock()
    await next.release()
  })

  it('can be released when the host cannot be recovered', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.layout.journal, '{\n')
    for (let time = 0; time < 2; time++) {
      const locked = await scene.lock()
      await assert.rejects(locked.recover(), error => error instanceof DeploymentError && error.code === 'inconsistent')
      await locked.release()
      assert.ok(!existsSync(scene.layout.lock))
    }
  })

  it('rolls back what a dead run left, in its name, before anything new', async t => {
    const scene = await makeScene(t)
    writeTree(scene.layout.root, { 'plugins/greeter/main': 'old' })
    mkdirSync(dirname(join(scene.layout.root, SNAPSHOT)), { recursive: true })
    const dead = await scene.lock()
    const { transaction, stagingFolder, abandon } = await dead.openSession()
    await transaction.apply({ type: 'move', from: 'plugins/greeter', to: SNAPSHOT })
    abandon()
    await dead.release()
    const locked = await scene.lock()
    await locked.recover()
    assert.ok(existsSync(join(scene.layout.root, 'plugins/greeter/main')))
    assert.ok(!existsSync(stagingFolder))
    assert.deepEqual(
      scene.sender.sent.map(({ report }) => report.outcome),
      ['rolled_back'],
    )
    await locked.release()
  })
})

describe('HostSession', () => {
  it('begins a journal that a recovery can report and roll back from', async t => {
    const scene = await makeScene(t)
    const locked = await scene.lock()
    const session = await locked.openSession()
    session.abandon()
    await locked.release()
    const begin = { facts: factsOf(), report_address: scene.sender.address, keep_paths: ['data'] }
    const [first, second] = readJournal(scene.layout.journal) ?? []
    assert.deepEqual(first, { record: 'begin', ...begin })
    assert.equal(second?.record === 'state' && second.state, 'pending')
  })

  it('leaves nothing to recover once it is settled', async t => {
    const scene = await makeScene(t)
    const locked = await scene.lock()
    const session = await locked.openSession()
    assert.ok(existsSync(scene.layout.journal))
    writeTree(session.stagingFolder, { 'tree/main': 'new' })
    await session.settle()
    await locked.release()
    assert.ok(!existsSync(scene.layout.journal))
    assert.deepEqual(readdirSync(scene.layout.staging), [])
    assert.deepEqual(scene.sender.sent, [])
  })
})
