import assert from 'node:assert/strict'
import { after, before, describe, it, type TestContext } from 'node:test'
import { sampled } from '../extent.ts'
import { assertNothingStrays } from './harness/invariants.ts'
import { type Ending, ERRORS, KILLED, type KilledRow } from './harness/kill-rows.ts'
import { assertSucceeds, type Fleet, openFleet, type PreparedHost } from './harness/prepared-host.ts'
import type { Stop } from './harness/stops.ts'
import { whyNoStrace } from './harness/strace.ts'

const noTracing = whyNoStrace()
const whyNot = (stops: readonly Stop[]): string | false => stops.some(stop => stop.needsTracing) && noTracing

describe('an update', { concurrency: 2 }, () => {
  let fleet: Fleet
  before(async () => {
    fleet = await openFleet()
  })
  after(() => fleet.close())

  for (const row of sampled(ERRORS, 4)) {
    it(`${row.name} ends ${row.outcome}`, { skip: whyNot(row.stop ? [row.stop] : []) }, async t => {
      const host = fleet.newHost(row.name)
      const stopped = await row.stop?.prepare(t, host, fleet)
      const result = await host.deploy({ ...row.inputs, ...stopped?.inputs }, stopped?.run)
      assert.deepEqual(
        { outcome: result.outputs['outcome'], code: result.outputs['error-code'], exit: result.exitCode },
        { outcome: row.outcome, code: row.code, exit: 1 },
        result.log,
      )
      assertEnded(fleet, host, row)
      await assertGoesOn(fleet, host)
    })
  }

  for (const row of KILLED) {
    it(`${row.name} is recovered by ${row.recoveredBy} and ends ${row.outcome}`, {
      skip: whyNot(row.stops),
    }, async t => {
      const host = fleet.newHost(row.name)
      const inputs = await killInTurn(t, fleet, host, row)
      if (row.recoveredBy === 'post') {
        assert.equal((await host.post(inputs)).exitCode, 0)
        assertEnded(fleet, host, row)
      } else {
        const next = await host.deploy({ ...inputs, version: '9.9.9' })
        assert.equal(next.outputs['error-code'], 'not_found', next.log)
        assertEnded(fleet, host, { ...row, reports: [...row.reports, 'failed'] })
      }
      await assertGoesOn(fleet, host)
    })
  }
})

/**
 * Has the first stop kill a run, and each further stop kill a post step of that run. Returns the inputs of these runs.
 */
async function killInTurn(
  t: TestContext,
  fleet: Fleet,
  host: PreparedHost,
  { stops, version = '2.0.0', hasEnded, outcome }: KilledRow,
): Promise<Record<string, string>> {
  const [first, ...later] = stops
  const stopped = await first.prepare(t, host, fleet)
  const inputs = { version, ...stopped.inputs }
  const dead = await host.deploy(inputs, stopped.run)
  assert.equal(dead.signal, 'SIGKILL', dead.log)
  assert.equal(dead.outputs['outcome'], hasEnded ? outcome : 'interrupted')
  for (const stop of later) {
    const recovery = await host.post(inputs, (await stop.prepare(t, host, fleet)).run)
    assert.equal(recovery.signal, 'SIGKILL', recovery.log)
  }
  return inputs
}

/**
 * Asserts that the local report of the deployment, the hub's reports and the files on the disk are as `ending`
 * requires.
 */
function assertEnded(fleet: Fleet, host: PreparedHost, ending: Ending): void {
  const [report] = host.localReports()
  assert.equal(report?.outcome, ending.outcome)
  assert.equal(report.states.map(({ state }) => state).join(' '), ending.states)
  assert.equal(report.state, report.states.at(-1)?.state)
  assert.deepEqual(host.reported(), ending.reports)
  assert.deepEqual(host.tree(), fleet[ending.tree])
}

/** Asserts that the next normal run succeeds by itself. */
async function assertGoesOn(fleet: Fleet, host: PreparedHost): Promise<void> {
  assertSucceeds(await host.deploy())
  assert.deepEqual(host.tree(), fleet.new)
  assertNothingStrays(host.root)
}
