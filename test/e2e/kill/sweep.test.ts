import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { byExtent } from '../../extent.ts'
import { assertNoSecret, type Listing, listLasting, readReports } from '../harness/evidence.ts'
import { countOutcomes } from '../harness/random.ts'
import { type Act, killBefore, openTraces, type TracedCall, type Traces, whyNoStrace } from '../harness/strace.ts'
import { assertTakenOver, openSweepHosts, type SweepHost, type SweepHosts } from '../harness/sweep-hosts.ts'

/** One in this many successive calls is tested. */
const SAMPLED = byExtent({ sample: 31, ci: 6, full: 1 })

interface Sweep {
  what: string
  /** The run that is killed. */
  act: Act
  /**
   * Matches the call right after which an earlier update of the host was killed; by default, there was no earlier
   * update.
   */
  interruptedAt?: (call: string) => boolean
  /** The last tested call comes right after the call that this matches; by default, it is the run's last call. */
  until?: (call: string) => boolean
}

const update: Act = (host, run) => host.update(run)
const removesJournal = (call: string): boolean => /unlink\w*\(.*journal\.jsonl/.test(call)
const linksSettings = (call: string): boolean => /link\w*\(.*greeter\.env", .*\/greeter\.env"/.test(call)
const recordsInstalled = (call: string): boolean => /rename\w*\(.*installed\.json/.test(call)

const sweeps: Sweep[] = [
  { what: 'an update', act: update },
  { what: 'a rollback', act: (host, run) => host.updateInVain(run) },
  { what: 'a rollback of a dead update', act: update, interruptedAt: linksSettings, until: removesJournal },
  { what: 'the end of a committed update', act: update, interruptedAt: recordsInstalled, until: removesJournal },
  { what: 'a post step that rolls back', act: (host, run) => host.post({}, run), interruptedAt: linksSettings },
  {
    what: 'a post step that finishes an update',
    act: (host, run) => host.post({}, run),
    interruptedAt: recordsInstalled,
  },
]

describe('killed before any one of its calls,', { skip: whyNoStrace() }, () => {
  let traces: Traces
  let hosts: SweepHosts
  let updateCalls: readonly TracedCall[]
  let reference: Listing

  before(async () => {
    hosts = await openSweepHosts()
    traces = openTraces()
    const host = hosts.copy('reference')
    updateCalls = (await traces.run(host, update)).calls
    reference = listLasting(host.root)
  })

  after(async () => {
    traces.close()
    await hosts.close()
  })

  for (const [index, sweep] of sweeps.entries()) {
    it(`${sweep.what} is finished by the next run`, { concurrency: 2 }, async t => {
      const start = await startOf(sweep, `start-${index}`)
      const calls = await census(sweep, hosts.copy(`census-${index}`, start?.host))
      const swept = calls.filter((_, at) => at % SAMPLED === index % SAMPLED)
      const outcomes: string[] = []
      await Promise.all(
        swept.map((call, at) =>
          t.test(call.text, async () => {
            outcomes.push(await killAndTakeOver(sweep, call, hosts.copy(`killed-${index}-${at}`, start?.host), start))
          }),
        ),
      )
      t.diagnostic(`${swept.length} of ${calls.length} calls: ${countOutcomes(outcomes)}`)
    })
  }

  async function startOf({ interruptedAt }: Sweep, name: string): Promise<Start | undefined> {
    if (interruptedAt === undefined) return undefined
    const host = hosts.copy(name)
    const at = updateCalls.findIndex(({ text }) => interruptedAt(text))
    assert.notEqual(at, -1)
    const next = updateCalls[at + 1]
    assert.ok(next)
    const { result } = await traces.run(host, update, killBefore(next))
    return { host, deploymentId: result.outputs['deployment-id'] }
  }

  async function census({ act, until }: Sweep, host: SweepHost): Promise<readonly TracedCall[]> {
    const { calls } = await traces.run(host, act)
    assert.ok(calls.length > 10, `the census must see more than 10 calls, but saw ${calls.length}`)
    const last = until === undefined ? -1 : calls.findIndex(({ text }) => until(text))
    return last === -1 ? calls : calls.slice(0, last + 2)
  }

  /**
   * Kills a run, and asserts that the next run recovers the host and updates it. Returns the final outcome of the
   * deployment that was cut off.
   */
  async function killAndTakeOver(
    sweep: Sweep,
    call: TracedCall,
    host: SweepHost,
    start: Start | undefined,
  ): Promise<string> {
    const { calls, result } = await traces.run(host, sweep.act, killBefore(call))
    assertKilled(call, calls, result)
    const deploymentId = start?.deploymentId ?? result.outputs['deployment-id']
    const hasBegun = start !== undefined || calls.some(isJournaled)
    await assertTakenOver({ host, hub: hosts.stage.store, reference, deploymentId, hasBegun })
    assertNoSecret(hosts.secrets, [host.root, host.workspace.temp], [result.log])
    return readReports(host.root).get(deploymentId ?? '')?.outcome ?? 'not begun'
  }
})

interface Start {
  host: SweepHost
  deploymentId: string | undefined
}

/**
 * Asserts that the kill came at the intended call: that call was the last of its name and role, and was not made. The
 * runtime repeats an interrupted call, so the kill may come at the repetition, which is not made either.
 */
function assertKilled(call: TracedCall, calls: readonly TracedCall[], { signal }: ActionResult): void {
  const last = calls.findLast(({ role, name }) => role === call.role && name === call.name)
  assert.equal(withoutCount(last?.text), withoutCount(call.text))
  assert.ok([0, 1].includes((last?.nth ?? 0) - call.nth), last?.text)
  assert.match(last?.result ?? '', /^\?|^unfinished|INJECTED/)
  // If only a child was killed, the run continues, as it does when a child fails.
  assert.equal(signal, call.role === 'child' ? null : 'SIGKILL')
}

function isJournaled({ name, args, result }: TracedCall): boolean {
  return name.startsWith('rename') && args.includes('/journal.jsonl"') && result === '0'
}

function withoutCount(text = ''): string {
  return text.replace(/ #\d+$/, '')
}
