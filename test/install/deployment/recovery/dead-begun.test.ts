import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { closeSync, existsSync, lstatSync, openSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { recoverHost, recoverMainStep } from '../../../../src/install/deployment/recovery/recover-host.ts'
import { recover } from '../../../../src/install/deployment/recovery/recovery.ts'
import { startGrace } from '../../../../src/install/files/grace.ts'
import { begunPath } from '../../../../src/install/host/layout.ts'
import { lockOpenFile } from '../../../../src/install/host/locks/kernel-lock.ts'
import { acquireLock } from '../../../../src/install/host/locks/lock.ts'
import { type ProcessIdentity, readOwnIdentity } from '../../../../src/install/host/locks/process-identity.ts'
import { writeLocalReport } from '../../../../src/install/reports/local-report.ts'
import { applyChanges } from '../../../../src/install/transaction/changes/change.ts'
import type { JournalRecord } from '../../../../src/install/transaction/journal/journal-record.ts'
import { listTree } from '../../archive/directory-listing.ts'
import { failOpen } from '../../failing-open.ts'
import { missingTools } from '../../missing-tools.ts'
import { DEPLOYMENT_ID, factsOf, NO_SECRETS, reportOf } from '../../prepared-host.ts'
import { journalText } from '../../transaction/journal/journal-text.ts'
import { assertReported, begun, makeScene, type Scene, SNAPSHOT, STAGING, UPDATE } from './recovery-scene.ts'

const OTHER_RUN = '22222222-2222-4222-8222-222222222222'
const NOW = new Date().toISOString()

interface BegunScene extends Scene {
  readonly path: string
  write(process: ProcessIdentity, more?: { startedAt?: string; records?: readonly JournalRecord[] }): void
}

/**
 * A host without a `journal.jsonl`, as the run `runId` finds it. `write` writes the journal of a run that has begun, but
 * has never had the lock.
 */
async function makeBegunScene(t: TestContext, runId = OTHER_RUN): Promise<BegunScene> {
  const scene = await makeScene(t)
  const path = begunPath(scene.layout, DEPLOYMENT_ID)
  return {
    ...scene,
    path,
    host: { ...scene.host, run: { id: runId, url: null } },
    write(process, { startedAt = NOW, records = [] } = {}) {
      const facts = { ...factsOf(), started_at: startedAt }
      const [begin, ...states] = begun(scene.sender, ['pending', 'fetching'], facts) as JournalRecord[]
      writeFileSync(path, journalText([{ ...begin, process } as JournalRecord, ...states, ...records]))
    },
  }
}

const own = readOwnIdentity()
const ended = (): ProcessIdentity => ({ ...own, pid: spawnSync('true').pid })
const elsewhere: ProcessIdentity = { ...own, hostname: 'elsewhere', boot_id: 'another', pid: 1 }

describe('a run that died before it had the lock', () => {
  it('is reported once as failed, and leaves no journal', async t => {
    const scene = await makeBegunScene(t)
    scene.write(ended())
    const plugins = scene.plugins()
    assert.equal(await recover(scene.host), undefined)
    assertReported(scene, { outcome: 'failed', changed: false, state: 'failed' })
    assert.ok(!existsSync(scene.path))
    await recover(scene.host)
    assertReported(scene, { outcome: 'failed' })
    assert.deepEqual(scene.plugins(), plugins)
  })

  it('is reported by its own post step, whatever is known of its process', async t => {
    const scene = await makeBegunScene(t, DEPLOYMENT_ID)
    scene.write(elsewhere)
    assert.equal((await recoverMainStep(scene.host))?.report.outcome, 'failed')
    assert.ok(!existsSync(scene.path))
  })

  it('is left to a later run by a post step that finds the host locked', async t => {
    const scene = await makeBegunScene(t, DEPLOYMENT_ID)
    scene.write(ended())
    const lock = await acquireLock({ path: scene.layout.lock, timeoutMs: 0, runUrl: null, log: () => {} })
    t.after(() => lock.release())
    assert.equal(await recoverMainStep(scene.host, 0), undefined)
    await assert.rejects(recoverHost(scene.host, 0), { code: 'locked' })
    assert.ok(existsSync(scene.path))
    assert.match(scene.log.lines.join('\n'), /has changed nothing; a later run reports it/)
  })

  it('is said to have left nothing to recover if its post step finds only the journal of another run', async t => {
    const scene = await makeBegunScene(t)
    scene.writeJournal(begun(scene.sender))
    const lock = await acquireLock({ path: scene.layout.lock, timeoutMs: 0, runUrl: null, log: () => {} })
    t.after(() => lock.release())
    assert.equal(await recoverMainStep(scene.host, 0), undefined)
    assert.match(scene.log.lines.join('\n'), new RegExp(`${OTHER_RUN} has left nothing to recover`))
  })

  it('is shown by its post step as the run that now has the lock reported it', async t => {
    const scene = await makeBegunScene(t)
    scene.writeJournal(begun(scene.sender))
    const reports = { layout: scene.layout, secrets: NO_SECRETS }
    await writeLocalReport(reports, reportOf({ slug: 'other', outcome: 'success' }))
    await writeLocalReport(reports, reportOf({ deployment_id: OTHER_RUN, outcome: 'failed' }))
    const lock = await acquireLock({ path: scene.layout.lock, timeoutMs: 0, runUrl: null, log: () => {} })
    t.after(() => lock.release())
    const { report } = (await recoverMainStep(scene.host, 0)) ?? {}
    assert.deepEqual([report?.deployment_id, report?.outcome], [OTHER_RUN, 'failed'])
  })

  it('is reported with the end that it recorded, if there is one', async t => {
    const scene = await makeBegunScene(t)
    const error = { code: 'network', message: 'The hub is gone.', step: null } as const
    const end = { outcome: 'failed', changed: false, completed_at: NOW, error, rollback: null } as const
    scene.write(ended(), { records: [{ record: 'end', end }] })
    await recover(scene.host)
    assertReported(scene, { outcome: 'failed', error })
  })
})

describe('a run that died before it had the lock, along with another run that had it', () => {
  const otherRun = (scene: Scene) =>
    begun(scene.sender, undefined, { ...factsOf(), deployment_id: OTHER_RUN, slug: 'other' })

  it('is the run that its own post step reports', async t => {
    const scene = await makeBegunScene(t, DEPLOYMENT_ID)
    scene.write(elsewhere)
    scene.writeJournal(otherRun(scene))
    assert.equal((await recoverMainStep(scene.host))?.report.deployment_id, DEPLOYMENT_ID)
    assert.deepEqual(
      scene
        .reports()
        .map(({ slug }) => slug)
        .sort(),
      ['greeter', 'other'],
    )
  })

  it('leaves no journal, and its recovery removes no file of the other run, even if that run cannot be recovered', async t => {
    const scene = await makeScene(t)
    const { root, installed, journal } = scene.layout
    for (const change of UPDATE.slice(0, 2)) await applyChanges(root, [scene.withInode(change)])
    writeFileSync(journal, '{\n')
    writeFileSync(installed, JSON.stringify({ schema: 1, installed: [], discard: [SNAPSHOT] }))
    const facts = { ...factsOf(), deployment_id: OTHER_RUN, started_at: NOW }
    const [begin, ...states] = begun(scene.sender, ['pending', 'fetching'], facts) as JournalRecord[]
    const path = begunPath(scene.layout, OTHER_RUN)
    writeFileSync(path, journalText([{ ...begin, process: ended() } as JournalRecord, ...states]))
    const before = [SNAPSHOT, STAGING].map(folder => listTree(join(root, folder)))
    await assert.rejects(recover(scene.host), { code: 'inconsistent' })
    assert.ok(!existsSync(path))
    assert.deepEqual(
      [SNAPSHOT, STAGING].map(folder => listTree(join(root, folder))),
      before,
    )
  })

  it('is reported even if the other run cannot be recovered', async t => {
    const scene = await makeBegunScene(t, DEPLOYMENT_ID)
    scene.write(elsewhere)
    writeFileSync(scene.layout.journal, '{\n')
    await assert.rejects(recoverMainStep(scene.host), { code: 'inconsistent' })
    assertReported(scene, { outcome: 'failed' })
    assert.ok(!existsSync(scene.path))
  })
})

describe('several runs that died before they had the lock', () => {
  const IDS = ['1', '2', '3'].map(digit => `0000000${digit}-0000-4000-8000-000000000000`)

  async function makeDead(t: TestContext) {
    const scene = await makeScene(t)
    const process = ended()
    for (const id of IDS) {
      const [begin] = begun(scene.sender, [], { ...factsOf(), deployment_id: id, started_at: NOW })
      writeFileSync(begunPath(scene.layout, id), journalText([{ ...begin, process } as JournalRecord]))
    }
    return { ...scene, left: () => IDS.filter(id => existsSync(begunPath(scene.layout, id))) }
  }

  it('share the time for sending their reports, and reports that the hub does not accept wait in the outbox', async t => {
    const { host, sender, left, layout } = await makeDead(t)
    const timeouts: number[] = []
    await recover({
      ...host,
      sender: {
        ...sender,
        async send(_, { timeoutMs }) {
          timeouts.push(timeoutMs)
          await setTimeout(20)
          return { accepted: false, attempts: 1, status: null, error: 'No answer.', final: false }
        },
      },
    })
    const [first = 0, second = 0, third = 0] = timeouts
    assert.ok(10_000 >= first && first > second && second > third, timeouts.join(' '))
    assert.deepEqual(left(), [])
    assert.equal(readdirSync(layout.outbox).length, IDS.length)
  })

  it('are left to the next run after a cancel', async t => {
    const { host, sender, left } = await makeDead(t)
    const cancel = new AbortController()
    const grace = startGrace(cancel.signal)
    await recover({
      ...host,
      grace,
      sender: {
        ...sender,
        async send() {
          cancel.abort()
          return { accepted: true, attempts: 1 }
        },
      },
    })
    assert.equal(left().length, IDS.length - 1)
    await recover(host)
    assert.deepEqual([left(), sender.sent.length], [[], IDS.length - 1])
  })
})

describe('a run that may be alive', () => {
  const long = new Date(Date.now() - 20 * 86_400_000).toISOString()
  const alive: Record<string, { process: ProcessIdentity; startedAt?: string }> = {
    'a process that runs': { process: own },
    'a process that runs, after the clock was set': { process: own, startedAt: long },
    'a process on another host': { process: elsewhere },
    'a process in another container': { process: { ...own, pid_namespace: 'pid:[1]', pid: 1 } },
  }
  for (const [what, { process, startedAt = NOW }] of Object.entries(alive)) {
    it(`is left alone: ${what}`, async t => {
      const scene = await makeBegunScene(t)
      scene.write(process, { startedAt })
      await recover(scene.host)
      assert.ok(existsSync(scene.path))
      assert.deepEqual(scene.sender.sent, [])
    })
  }

  it('is left alone in another container of this machine while it has its journal locked, and only then', {
    skip: missingTools('flock'),
  }, async t => {
    const scene = await makeBegunScene(t)
    const held = { records: [{ record: 'held' }] } as const
    scene.write({ ...elsewhere, boot_id: own.boot_id }, held)
    const fd = openSync(scene.path, 'r+')
    assert.ok(await lockOpenFile(fd))
    await recover(scene.host)
    assert.ok(existsSync(scene.path))
    closeSync(fd)
    scene.write(elsewhere, held)
    await recover(scene.host)
    assert.ok(existsSync(scene.path))
    scene.write({ ...elsewhere, boot_id: own.boot_id }, held)
    await recover(scene.host)
    assertReported(scene, { outcome: 'failed' })
    assert.ok(!existsSync(scene.path))
  })

  for (const [what, process] of Object.entries({ 'that runs': own, 'on another host': elsewhere })) {
    it(`keeps its journal even if this version does not know a record in it: a process ${what}`, async t => {
      const scene = await makeBegunScene(t)
      scene.write(process, { records: [{ record: 'of a later version' } as unknown as JournalRecord] })
      await recover(scene.host)
      assert.ok(existsSync(scene.path))
    })
  }

  it('counts as dead once it is older than any job can be', async t => {
    const scene = await makeBegunScene(t)
    scene.write(elsewhere, { startedAt: long })
    await recover(scene.host)
    assertReported(scene, { outcome: 'failed' })
  })
})

describe('the journal of a run that has only begun', () => {
  it('is removed if it is not one that this action writes', async t => {
    const scene = await makeBegunScene(t)
    writeFileSync(scene.path, '{\n')
    await recover(scene.host)
    assert.ok(!existsSync(scene.path))
    assert.deepEqual(scene.reports(), [])
    assert.ok(scene.log.lines.some(line => line.startsWith(`warning Removed ${scene.path}, the damaged journal `)))
  })

  it('stays for a later run if it cannot be opened now', async t => {
    const scene = await makeBegunScene(t)
    scene.write(ended())
    failOpen(t, scene.path, { times: 2 })
    await recover(scene.host)
    assert.ok(existsSync(scene.path))
    assert.deepEqual([scene.reports(), scene.log.lines.filter(line => line.includes('journal'))], [[], []])
    await recover(scene.host)
    assertReported(scene, { outcome: 'failed' })
  })

  it('is removed if it is not a file', async t => {
    const scene = await makeBegunScene(t)
    symlinkSync('elsewhere', scene.path)
    await recover(scene.host)
    assert.throws(() => lstatSync(scene.path), { code: 'ENOENT' })
  })

  it('is never obeyed: a change that it announces is not undone', async t => {
    const scene = await makeBegunScene(t)
    const [change] = UPDATE
    assert.ok(change)
    scene.write(ended(), { records: [{ record: 'change', change: scene.withInode(change) }] })
    const plugins = scene.plugins()
    await recover(scene.host)
    assert.deepEqual(scene.plugins(), plugins)
    assert.ok(!existsSync(scene.path))
    assert.deepEqual(scene.reports(), [])
  })
})
