import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { byExtent } from '../../extent.ts'
import {
  assertExactly,
  assertNothingStrays,
  assertReported,
  assertSettled,
  type Listing,
  listLasting,
  listLive,
  readReports,
} from '../harness/evidence.ts'
import { runRecover } from '../harness/processes.ts'
import { countOutcomes } from '../harness/random.ts'
import {
  failWith,
  killBefore,
  NAME_CALLS,
  openTraces,
  type TracedCall,
  type Traces,
  whyNoStrace,
} from '../harness/strace.ts'
import { openRollbackHosts, type RollbackHost, type RollbackHosts, type Subject } from '../harness/sweep-hosts.ts'

/** One in this many successive calls is tested. */
const SAMPLED = byExtent({ sample: 89, ci: 41, full: 1 })
const RECOVERIES = ['the next rollback', 'post', 'a deployment that is refused', 'recover.js'] as const
/** The traced calls: those that change names, those that make bytes durable, and the write of each journal record. */
const CALLS = [...NAME_CALLS, 'pwrite64']

const SUBJECTS: readonly Subject[] = [
  'a plugin with kept paths',
  'a project of three parts',
  'a plugin that is to be removed',
]

for (const subject of SUBJECTS) {
  describe(`a rollback of ${subject}, killed before any one of its calls`, { skip: whyNoStrace() }, () => {
    let hosts: RollbackHosts
    let traces: Traces<RollbackHost>
    let calls: readonly TracedCall[]
    let old: Listing
    let reference: Listing

    before(async () => {
      hosts = await openRollbackHosts(subject)
      traces = openTraces()
      old = listLive(hosts.root)
      const host = hosts.copy('reference')
      calls = (await traces.run(host, rollBack, { calls: CALLS })).calls
      reference = listLasting(host.root)
    })
    after(async () => {
      traces.close()
      await hosts.close()
    })

    for (const [index, recoveredBy] of RECOVERIES.entries()) {
      it(`is exactly old or exactly new after ${recoveredBy}`, { concurrency: 2 }, async t => {
        assert.ok(calls.length > 50, `the census must see more than 50 calls, but saw ${calls.length}`)
        const swept = calls.filter((_, at) => at % SAMPLED === (index * 13) % SAMPLED)
        const outcomes: string[] = []
        const kill = async (call: TracedCall, at: number) => {
          outcomes.push(await killAndRecover(call, hosts.copy(`${index}-${at}`), recoveredBy))
        }
        await Promise.all(swept.map((call, at) => t.test(call.text, () => kill(call, at))))
        t.diagnostic(`${swept.length} of ${calls.length} calls: ${countOutcomes(outcomes)}`)
      })
    }

    it('is exactly old or exactly new if, instead, one of its calls finds the disk full', {
      concurrency: 2,
    }, async t => {
      const concerned = calls.filter(({ name, role }) => /^(rename|mkdir|pwrite64)/.test(name) && role !== 'child')
      const swept = concerned.filter((_, at) => at % SAMPLED === 5 % SAMPLED)
      const outcomes: string[] = []
      const fail = async (call: TracedCall, at: number) => {
        outcomes.push(await failAndRepeat(call, hosts.copy(`full-${at}`)))
      }
      await Promise.all(swept.map((call, at) => t.test(call.text, () => fail(call, at))))
      t.diagnostic(`${swept.length} of ${concerned.length} calls: ${countOutcomes(outcomes)}`)
    })

    /** Makes one call of a rollback fail, and repeats the rollback. Returns the outcome of the first rollback. */
    async function failAndRepeat(call: TracedCall, host: RollbackHost): Promise<string> {
      const { result } = await traces.run(host, rollBack, { calls: CALLS, ...failWith('ENOSPC', call) })
      const { outcome = '' } = result.outputs
      assert.match(outcome, /^(success|failed|rolled_back)$/, result.log)
      const found = assertExactly(host.root, { old, new: liveIn(reference) })
      assert.equal(found, outcome === 'success' ? 'new' : 'old')
      assert.equal(assertReported(host.root, await host.rollBack()).outcome, 'success')
      assert.deepEqual(listLasting(host.root), reference)
      return outcome
    }

    /** Kills a rollback, and asserts that it is recovered. Returns the final outcome of the killed rollback. */
    async function killAndRecover(call: TracedCall, host: RollbackHost, recoveredBy: string): Promise<string> {
      const { result } = await traces.run(host, rollBack, { calls: CALLS, ...killBefore(call) })
      const id = result.outputs['deployment-id'] ?? ''
      if (call.role !== 'child') assert.equal(result.signal, 'SIGKILL', result.log)
      if (recoveredBy !== 'the next rollback') {
        await recover(host, recoveredBy)
        assertOneVersion(host, id)
      }
      const next = await host.rollBack()
      assert.equal(assertReported(host.root, next).outcome, 'success', next.log)
      assert.deepEqual(listLasting(host.root), reference)
      assertNothingStrays(host.root)
      await assertSettled(host.root, () => host.rollBack())
      const report = readReports(host.root).get(id)
      assert.ok(['success', 'failed', 'rolled_back', undefined].includes(report?.outcome), report?.outcome)
      return report?.outcome ?? 'not begun'
    }

    /** Asserts that the live trees are all new if the dead run's report says `success`, and otherwise all old. */
    function assertOneVersion({ root }: RollbackHost, id: string): void {
      const outcome = readReports(root).get(id)?.outcome
      const found = assertExactly(root, { old, new: liveIn(reference) })
      assert.equal(found, outcome === 'success' ? 'new' : 'old', outcome)
    }
  })
}

async function recover(host: RollbackHost, by: string): Promise<void> {
  if (by === 'post') {
    const { exitCode, log } = await host.rollbackPost()
    assert.equal(exitCode, 0, log)
    return
  }
  if (by === 'recover.js') {
    const { status, stderr } = runRecover(['--project-root', host.root])
    return assert.equal(status, 0, stderr)
  }
  const { outputs, log } = await host.deploy()
  assert.equal(outputs['outcome'], 'failed', log)
  assert.equal(outputs['error-code'], 'not_found', log)
}

function rollBack(host: RollbackHost, run: Parameters<RollbackHost['rollBack']>[1]) {
  return host.rollBack({}, run)
}

function liveIn(listing: Listing): Listing {
  return Object.fromEntries(Object.entries(listing).filter(([path]) => /^(plugins|extensions)(\/|$)/.test(path)))
}
