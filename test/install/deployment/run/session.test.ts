import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../../src/core/errors.ts'
import type { Log } from '../../../../src/core/log.ts'
import {
  type DeploymentStart,
  type RunningDeployment,
  startDeployment,
} from '../../../../src/install/deployment/deployment.ts'
import { type BegunDeployment, beginDeployment } from '../../../../src/install/deployment/run/begun.ts'
import { HostLock } from '../../../../src/install/deployment/run/host-lock.ts'
import { type HostSession, openSession } from '../../../../src/install/deployment/run/session.ts'
import { begunPath, type Layout } from '../../../../src/install/host/layout.ts'
import { readOwnIdentity } from '../../../../src/install/host/locks/process-identity.ts'
import type { LocalReport } from '../../../../src/install/reports/local-report.ts'
import { readJournal } from '../../../../src/install/transaction/journal/read-journal.ts'
import { type DeployState, MARKETPLACE_TRANSITIONS } from '../../../../src/marketplace/states.ts'
import { collectLog } from '../../collected-log.ts'
import { requestOf, toolsOf } from '../../prepared-deployment.ts'
import { DEPLOYMENT_ID, factsOf, prepareTemporaryHost, type RecordingSender, senderThat } from '../../prepared-host.ts'
import { writeTree } from '../../temporary-directory.ts'

const SNAPSHOT = '.hub-deploy/snapshots/plugins/greeter/1-1.0.0'

interface Scene {
  layout: Layout
  sender: RecordingSender
  /** The reports that the observer got with each call of `onBegun`. */
  interrupted: LocalReport[]
  newDeployment(log?: Log): RunningDeployment<DeployState>
  newLock(): HostLock
  begin(): Promise<BegunDeployment>
  /** Opens the host for changes. The caller must release the lock of the host. */
  open(): Promise<HostSession>
}

async function makeScene(t: TestContext): Promise<Scene> {
  const layout = await prepareTemporaryHost(t)
  const sender = senderThat({ accepted: true, attempts: 1 })
  const interrupted: LocalReport[] = []
  const observer = {
    onBegun: (report: LocalReport) => void interrupted.push(report),
    onProgress: () => {},
    onEnded: () => {},
  }
  const start: DeploymentStart<DeployState> = { transitions: MARKETPLACE_TRANSITIONS, facts: factsOf(), sender }
  const request = requestOf(layout, { keepPaths: ['data'] })
  const newDeployment = (log: Log = collectLog()) => startDeployment(request, toolsOf({ observer, log }), start)
  return {
    layout,
    sender,
    interrupted,
    newDeployment,
    newLock: () => new HostLock(newDeployment()),
    begin: async () => await beginDeployment(newDeployment()),
    async open() {
      const deployment = newDeployment()
      return await openSession(deployment, await beginDeployment(deployment))
    },
  }
}

describe('HostLock', () => {
  it('locks the host until it is released', async t => {
    const scene = await makeScene(t)
    const lock = scene.newLock()
    await lock.take(0)
    assert.ok(existsSync(scene.layout.lock))
    assert.equal(scene.interrupted.length, 1)
    assert.equal(scene.interrupted[0]?.outcome, 'interrupted')
    const next = scene.newLock()
    await assert.rejects(next.take(0), { code: 'locked' })
    lock.release()
    assert.ok(!existsSync(scene.layout.lock))
    await next.take(0)
    next.release()
  })

  it('records which run it waited for, and after which state, if it waited', async t => {
    const scene = await makeScene(t)
    const lock = scene.newLock()
    await lock.take(0)
    const deployment = scene.newDeployment({ ...collectLog(), info: () => lock.release() })
    await deployment.enter('fetching')
    const next = new HostLock(deployment)
    await next.take(60_000)
    const { waited } = deployment.record.facts
    assert.equal(waited?.state, 'fetching')
    assert.match(waited?.for ?? '', new RegExp(`process ${process.pid} `))
    next.release()
    const undisturbed = scene.newDeployment()
    await undisturbed.enter('fetching')
    const last = new HostLock(undisturbed)
    await last.take(0)
    assert.equal(undisturbed.record.facts.waited, undefined)
    last.release()
  })

  it('can be released even if the host cannot be recovered', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.layout.journal, '{\n')
    for (let time = 0; time < 2; time++) {
      const lock = scene.newLock()
      await assert.rejects(lock.take(0), error => error instanceof DeploymentError && error.code === 'inconsistent')
      assert.ok(existsSync(scene.layout.lock))
      lock.release()
      assert.ok(!existsSync(scene.layout.lock))
    }
  })

  it('rolls back the changes of a dead run, and reports them under its id, before it starts anything new', async t => {
    const scene = await makeScene(t)
    writeTree(scene.layout.root, { 'plugins/greeter/main': 'old' })
    mkdirSync(dirname(join(scene.layout.root, SNAPSHOT)), { recursive: true })
    const { transaction, stagingFolder, abandon } = await scene.open()
    await transaction.apply([{ type: 'move', from: 'plugins/greeter', to: SNAPSHOT }])
    abandon()
    const lock = scene.newLock()
    await lock.take(0)
    assert.ok(existsSync(join(scene.layout.root, 'plugins/greeter/main')))
    assert.ok(!existsSync(stagingFolder))
    assert.deepEqual(
      scene.sender.sent.map(({ report }) => report.outcome),
      ['rolled_back'],
    )
    lock.release()
  })
})

describe('a deployment that has begun', () => {
  it('has its own journal, which no other run uses while its process lives', async t => {
    const scene = await makeScene(t)
    const begun = await scene.begin()
    const path = begunPath(scene.layout, DEPLOYMENT_ID)
    assert.ok(existsSync(path) && !existsSync(scene.layout.journal))
    const lock = scene.newLock()
    await lock.take(0)
    lock.release()
    assert.ok(existsSync(path))
    assert.deepEqual(scene.sender.sent, [])
    await begun.settle()
    assert.ok(!existsSync(path))
  })
})

describe('HostSession', () => {
  it('turns the journal of its deployment into one that a recovery can report and roll back', async t => {
    const scene = await makeScene(t)
    const session = await scene.open()
    session.abandon()
    assert.ok(!existsSync(begunPath(scene.layout, DEPLOYMENT_ID)))
    const known = { facts: factsOf(), report_address: scene.sender.address, keep_paths: ['data'] }
    const [first, second] = readJournal(scene.layout.journal) ?? []
    assert.deepEqual(first, { record: 'begin', ...known, process: readOwnIdentity() })
    assert.equal(second?.record === 'state' && second.state, 'pending')
  })

  it('leaves nothing to recover once it is settled', async t => {
    const scene = await makeScene(t)
    const session = await scene.open()
    assert.ok(existsSync(scene.layout.journal))
    writeTree(session.stagingFolder, { 'tree/main': 'new' })
    await session.settle()
    assert.ok(!existsSync(scene.layout.journal))
    assert.deepEqual(readdirSync(scene.layout.staging), [])
    assert.deepEqual(scene.sender.sent, [])
  })

  it('keeps the staged files if a kept path is lost, even if they fill the disk', async t => {
    const scene = await makeScene(t)
    const { root, staging, snapshots } = scene.layout
    writeTree(root, { [`${SNAPSHOT}/data/rows`]: 'rows' })
    const session = await scene.open()
    writeTree(session.stagingFolder, { 'tree/main': 'new' })
    const to = relative(root, join(session.stagingFolder, 'tree/data'))
    await session.transaction.apply([{ type: 'move', from: `${SNAPSHOT}/data`, to }])
    rmSync(join(root, to), { recursive: true })
    await session.transaction.rollback()
    await session.makeRoom()
    assert.ok(existsSync(join(session.stagingFolder, 'tree/main')))
    await session.settle()
    assert.deepEqual(readdirSync(staging), [])
    const [aside = ''] = readdirSync(join(snapshots, 'set-aside'))
    assert.ok(existsSync(join(snapshots, 'set-aside', aside, 'tree/main')))
  })
})
