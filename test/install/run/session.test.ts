import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import type { Log } from '../../../src/core/log.ts'
import type { Layout } from '../../../src/install/host/layout.ts'
import { describeOther } from '../../../src/install/host/lock.ts'
import type { DeploymentFacts } from '../../../src/install/journal/facts.ts'
import { readJournal } from '../../../src/install/journal/read.ts'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import { type DeploymentStart, type RunningDeployment, startDeployment } from '../../../src/install/run/deployment.ts'
import { HostLock, type HostSession, openSession } from '../../../src/install/run/session.ts'
import { type DeployState, MARKETPLACE_TRANSITIONS } from '../../../src/marketplace/deployment.ts'
import { writeTree } from '../../folders.ts'
import { failOpen } from '../failing-calls.ts'
import { requestOf, toolsOf } from '../prepared-deployment.ts'
import {
  collectLog,
  DEPLOYMENT_ID,
  factsOf,
  prepareTemporaryHost,
  type RecordingSender,
  senderThat,
} from '../prepared-host.ts'

const SNAPSHOT = '.hub-deploy/snapshots/plugins/greeter/1-1.0.0'

interface Scene {
  layout: Layout
  sender: RecordingSender
  /** The reports that the observer got with each call of `onBegun`. */
  interrupted: LocalReport[]
  /** The deployment waits for its lock for one minute. */
  newDeployment(log?: Log): RunningDeployment<DeployState>
  /** The lock of a deployment that does not wait. */
  newLock(facts?: DeploymentFacts): HostLock
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
  const startOf = (facts = factsOf()): DeploymentStart<DeployState> => ({
    ...{ transitions: MARKETPLACE_TRANSITIONS, facts, sender },
  })
  const newDeployment = (log: Log = collectLog()) =>
    startDeployment(
      requestOf(layout, { keepPaths: ['data'], lockTimeoutMs: 60_000 }),
      toolsOf({ observer, log }),
      startOf(),
    )
  return {
    layout,
    sender,
    interrupted,
    newDeployment,
    newLock: facts => new HostLock(startDeployment(requestOf(layout), toolsOf({ observer }), startOf(facts))),
    open: async () => await openSession(newDeployment()),
  }
}

describe('HostLock', () => {
  it('is released without a group about a wait if its file cannot be read', async t => {
    const { layout, newDeployment } = await makeScene(t)
    const log = collectLog()
    const lock = new HostLock(newDeployment(log))
    await lock.take()
    failOpen(t, layout.lock, { code: 'EIO', times: 1 })
    lock.release()
    assert.match(log.lines.join('\n'), /The lock stays until the next run takes it over/)
    assert.doesNotMatch(log.lines.join('\n'), /[Ww]aiting for/)
  })

  it('locks the host until it is released', async t => {
    const scene = await makeScene(t)
    const lock = scene.newLock()
    await lock.take()
    assert.ok(existsSync(scene.layout.lock))
    assert.equal(scene.interrupted.length, 1)
    assert.equal(scene.interrupted[0]?.outcome, 'interrupted')
    const next = scene.newLock()
    await assert.rejects(next.take(), { code: 'locked' })
    lock.release()
    assert.ok(!existsSync(scene.layout.lock))
    await next.take()
    next.release()
  })

  it('records for which run the deployment waited, if it did', async t => {
    const scene = await makeScene(t)
    const lock = scene.newLock()
    await lock.take()
    const log = collectLog()
    const info = (line: string): void => {
      log.info(line)
      lock.release()
    }
    const deployment = scene.newDeployment({ ...log, info })
    const next = new HostLock(deployment)
    await next.take()
    const { waited } = deployment.record.facts
    assert.match(waited?.for ?? '', new RegExp(`process ${process.pid} `))
    assert.match(log.lines[0] ?? '', /^info Waiting for the lock of this host: .*\. To go first, cancel that run\.$/)
    next.release()
    const undisturbed = scene.newDeployment()
    const last = new HostLock(undisturbed)
    await last.take()
    assert.equal(undisturbed.record.facts.waited, undefined)
    last.release()
  })

  const unknown = { slug: null, id: null, version: null, requested_version: null }
  const named = [
    ['the slug and the version', factsOf({ requested_version: '2.0.0' }), / since \S+ to deploy greeter 2\.0\.0(, |$)/],
    ['the id if the slug is not known', factsOf({ ...unknown, id: 'greeter' }), / since \S+ to deploy greeter(, |$)/],
    ['nothing if nothing is known', factsOf(unknown), / since [^ ,]+(, http\S+)?$/],
  ] as const
  for (const [what, facts, holder] of named)
    it(`shows other runs ${what}`, async t => {
      const scene = await makeScene(t)
      const lock = scene.newLock(facts)
      await lock.take()
      assert.match(describeOther(scene.layout.lock), holder)
      lock.release()
    })

  it('can be released even if the host cannot be recovered', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.layout.journal, '{\n')
    for (let time = 0; time < 2; time++) {
      const lock = scene.newLock()
      await assert.rejects(lock.take(), error => error instanceof DeploymentError && error.code === 'inconsistent')
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
    await lock.take()
    assert.ok(existsSync(join(scene.layout.root, 'plugins/greeter/main')))
    assert.ok(!existsSync(stagingFolder))
    assert.deepEqual(
      scene.sender.sent.map(({ report }) => report.outcome),
      ['rolled_back'],
    )
    lock.release()
  })
})

describe('HostSession', () => {
  it('begins a journal that a recovery can report', async t => {
    const scene = await makeScene(t)
    const session = await scene.open()
    session.abandon()
    const known = { facts: factsOf(), report_address: scene.sender.address, keep_paths: ['data'] }
    const [first, second] = readJournal(scene.layout.journal) ?? []
    assert.deepEqual(first, { record: 'begin', ...known })
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
    assert.deepEqual(readdirSync(scene.layout.trash), [DEPLOYMENT_ID])
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
    await session.transaction.undo()
    await session.makeRoom()
    assert.ok(existsSync(join(session.stagingFolder, 'tree/main')))
    await session.settle()
    assert.deepEqual(readdirSync(staging), [])
    const [aside = ''] = readdirSync(join(snapshots, 'set-aside'))
    assert.ok(existsSync(join(snapshots, 'set-aside', aside, 'tree/main')))
  })
})
