import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { byExtent } from '../../extent.ts'
import {
  assertExactly,
  assertNoSecret,
  assertReported,
  type Listing,
  listLasting,
  listLive,
} from '../harness/evidence.ts'
import { countOutcomes } from '../harness/random.ts'
import { type Act, failWith, openTraces, type TracedCall, type Traces, whyNoStrace } from '../harness/strace.ts'
import { assertTakenOver, openSweepHosts, type SweepHost, type SweepHosts } from '../harness/sweep-hosts.ts'

/** One in this many successive calls is tested. */
const SAMPLED = byExtent({ sample: 29, ci: 5, full: 1 })

const update: Act = (host, run) => host.update(run)

/** The errors of a broken disk, of a full disk, and of a missing permission. */
const failures: { error: string; calls: RegExp }[] = [
  { error: 'EIO', calls: /^f(data)?sync$/ },
  { error: 'EIO', calls: /^rename/ },
  { error: 'ENOSPC', calls: /^(rename|link|mkdir)/ },
  { error: 'EACCES', calls: /^(rename|link|mkdir|unlink|rmdir)/ },
]

describe('a deployment in which any one call fails', { skip: whyNoStrace() }, () => {
  let traces: Traces
  let hosts: SweepHosts
  let updateCalls: readonly TracedCall[]
  let reference: { live: Listing; lasting: Listing }

  before(async () => {
    hosts = await openSweepHosts()
    traces = openTraces()
    const host = hosts.copy('reference')
    updateCalls = (await traces.run(host, update)).calls
    reference = { live: listLive(host.root), lasting: listLasting(host.root) }
  })

  after(async () => {
    traces.close()
    await hosts.close()
  })

  for (const [index, { error, calls }] of failures.entries()) {
    it(`ends by itself and reports how it ended: ${error} of ${calls.source}`, { concurrency: 2 }, async t => {
      const concerned = updateCalls.filter(({ name, role }) => calls.test(name) && role !== 'child')
      const swept = concerned.filter((_, at) => at % SAMPLED === index % SAMPLED)
      const outcomes: string[] = []
      await Promise.all(
        swept.map((call, at) =>
          t.test(call.text, async () => {
            outcomes.push(await failAndTakeOver(error, call, hosts.copy(`failed-${index}-${at}`)))
          }),
        ),
      )
      t.diagnostic(`${swept.length} of ${concerned.length} calls: ${countOutcomes(outcomes)}`)
    })
  }

  async function failAndTakeOver(error: string, call: TracedCall, host: SweepHost): Promise<string> {
    const { result, calls } = await traces.run(host, update, failWith(error, call))
    const hit = calls.find(({ result: answer }) => answer.includes('INJECTED'))
    assert.equal(hit?.text, call.text)
    const { outcome = '' } = result.outputs
    assert.match(outcome, /^(success|failed|rolled_back)$/)
    if (result.outputs['report-path'] !== '') assertReported(host.root, result)
    const live = assertExactly(host.root, { old: hosts.old, new: reference.live })
    assert.equal(live, outcome === 'success' ? 'new' : 'old')
    const deploymentId = result.outputs['deployment-id']
    await assertTakenOver({
      host,
      hub: hosts.stage.store,
      reference: reference.lasting,
      deploymentId,
      hasBegun: true,
    })
    // If the failed run could not write its local report, the next run has written it.
    assertReported(host.root, result)
    assertNoSecret(hosts.secrets, [host.root, host.workspace.temp], [result.log])
    return outcome
  }
})
