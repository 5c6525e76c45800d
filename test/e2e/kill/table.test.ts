import assert from 'node:assert/strict'
import { after, before, describe, it, type TestContext } from 'node:test'
import type { ErrorCode } from '../../../src/core/errors.ts'
import type { Outcome } from '../../../src/core/state-machine.ts'
import { sampled } from '../../extent.ts'
import { assertNothingStrays } from '../harness/evidence.ts'
import { assertSucceeds, FAILING_VERSION, type Fleet, openFleet, type PreparedHost } from '../harness/prepared-host.ts'
import {
  failToWrite,
  inSync,
  killAtCall,
  killAtRequest,
  killBefore,
  killBeforeReplacing,
  killRecoveryBefore,
  type Stop,
} from '../harness/stops.ts'
import { whyNoStrace } from '../harness/strace.ts'

/** The required result of an update from 1.0.0, on the disk and in every report. */
interface Ending {
  outcome: Outcome
  /** The states of the final local report, in order. */
  states: string
  /** The statuses of the reports to the hub, in order. */
  reports: readonly string[]
  tree: 'old' | 'new'
}

interface ErrorRow extends Ending {
  name: `error_in_${string}`
  code: ErrorCode
  inputs?: Record<string, string>
  stop?: Stop
}

interface KilledRow extends Ending {
  name: `killed_in_${string}`
  version?: string
  /** The first stop kills the run; each further stop kills a post step that recovers the run. */
  stops: [Stop, ...Stop[]]
  recoveredBy: 'post' | 'next run'
  /** Set if the run that is killed has already set its final outputs. */
  hasEnded?: true
}

const FETCHED = 'pending fetching verifying_signature'
const RESOLVED = `${FETCHED} extracting loading_plan resolving_sequence`
const STEPS_DONE = `${RESOLVED} installing healthchecking`
const FAILED = { outcome: 'failed', reports: ['failed'], tree: 'old' } as const
const ROLLED_BACK = { outcome: 'rolled_back', reports: ['rolled_back'], tree: 'old' } as const
const SUCCEEDED = {
  outcome: 'success',
  reports: ['success'],
  tree: 'new',
  states: `${STEPS_DONE} succeeded`,
} as const
const PLACE_TAKEN = 'change plugins/greeter'
const NEEDY = { version: FAILING_VERSION }
/** A run sends its report before it removes its journal, and the next run does not send that report again. */
const SETTLING = killAtCall('journal.jsonl', 'unlink')

const ERRORS: readonly ErrorRow[] = [
  {
    ...FAILED,
    name: 'error_in_pending',
    code: 'invalid_plan',
    inputs: { slug: 'clock' },
    states: 'pending',
  },
  {
    ...FAILED,
    name: 'error_in_fetching',
    code: 'not_found',
    inputs: { version: '9.9.9' },
    states: 'pending fetching failed',
  },
  {
    ...FAILED,
    name: 'error_in_verifying_signature',
    code: 'signature_mismatch',
    inputs: { 'signing-secret': 'of another developer' },
    states: `${FETCHED} failed`,
  },
  {
    ...FAILED,
    name: 'error_in_extracting',
    code: 'archive_too_large',
    inputs: { 'max-entries': '1' },
    states: `${FETCHED} extracting failed`,
  },
  {
    ...FAILED,
    name: 'error_in_announcing_the_first_change',
    code: 'disk_full',
    stop: failToWrite('change .hub-deploy/snapshots/plugins/greeter/2-1.0.0'),
    states: `${RESOLVED} installing failed`,
  },
  {
    ...ROLLED_BACK,
    name: 'error_in_install_plugin_after_the_old_version_was_moved',
    code: 'step_failed',
    stop: inSync('rm -r "$2"'),
    states: `${RESOLVED} installing rolled_back`,
  },
  {
    ...ROLLED_BACK,
    name: 'error_in_write_env',
    code: 'step_failed',
    inputs: NEEDY,
    states: `${RESOLVED} installing rolled_back`,
  },
  {
    ...ROLLED_BACK,
    name: 'error_in_announcing_the_switch',
    code: 'disk_full',
    stop: failToWrite(PLACE_TAKEN),
    states: `${RESOLVED} installing rolled_back`,
  },
  {
    ...ROLLED_BACK,
    name: 'error_in_commit',
    code: 'disk_full',
    stop: failToWrite('commit'),
    states: `${STEPS_DONE} rolled_back`,
  },
]

const KILLED: readonly KilledRow[] = [
  {
    ...FAILED,
    name: 'killed_in_pending',
    stops: [killBefore('state fetching')],
    recoveredBy: 'post',
    states: 'pending',
  },
  {
    ...FAILED,
    name: 'killed_in_fetching',
    stops: [killAtRequest('artifact')],
    recoveredBy: 'next run',
    states: 'pending fetching failed',
  },
  {
    ...FAILED,
    name: 'killed_in_verifying_signature',
    stops: [killBefore('state extracting')],
    recoveredBy: 'post',
    states: `${FETCHED} failed`,
  },
  {
    ...FAILED,
    name: 'killed_in_extracting',
    stops: [killBefore('state loading_plan')],
    recoveredBy: 'next run',
    states: `${FETCHED} extracting failed`,
  },
  {
    ...FAILED,
    name: 'killed_in_loading_plan',
    stops: [killBefore('state resolving_sequence')],
    recoveredBy: 'post',
    states: `${FETCHED} extracting loading_plan failed`,
  },
  {
    ...FAILED,
    name: 'killed_in_resolving_sequence',
    stops: [killBefore('state installing')],
    recoveredBy: 'next run',
    states: `${RESOLVED} failed`,
  },
  {
    ...FAILED,
    name: 'killed_in_installing_by_its_own_child',
    stops: [inSync('kill -KILL $PPID')],
    recoveredBy: 'next run',
    states: `${RESOLVED} installing failed`,
  },
  {
    ...ROLLED_BACK,
    name: 'killed_in_install_plugin_with_no_version_in_place',
    stops: [killBefore(PLACE_TAKEN)],
    recoveredBy: 'post',
    states: `${RESOLVED} installing rolled_back`,
  },
  {
    ...ROLLED_BACK,
    name: 'killed_in_install_plugin_after_the_switch',
    stops: [killBefore('step files')],
    recoveredBy: 'next run',
    states: `${RESOLVED} installing rolled_back`,
  },
  {
    ...ROLLED_BACK,
    name: 'killed_in_write_env',
    stops: [killBefore('step env')],
    recoveredBy: 'post',
    states: `${RESOLVED} installing rolled_back`,
  },
  {
    ...ROLLED_BACK,
    name: 'killed_in_healthchecking',
    stops: [killBefore('commit')],
    recoveredBy: 'next run',
    states: `${STEPS_DONE} rolled_back`,
  },
  {
    ...SUCCEEDED,
    name: 'killed_in_commit_before_installed_json_is_written',
    stops: [killBeforeReplacing('installed.json')],
    recoveredBy: 'post',
  },
  {
    ...SUCCEEDED,
    name: 'killed_in_cleanup',
    stops: [killAtCall('snapshots/plugins/greeter/1-0.9.0', 'rename')],
    recoveredBy: 'next run',
  },
  { ...SUCCEEDED, name: 'killed_in_succeeded', stops: [killBefore('end')], recoveredBy: 'post' },
  {
    ...SUCCEEDED,
    name: 'killed_in_reporting',
    stops: [killAtRequest('report')],
    hasEnded: true,
    recoveredBy: 'next run',
  },
  {
    ...SUCCEEDED,
    name: 'killed_in_settling',
    stops: [SETTLING],
    hasEnded: true,
    recoveredBy: 'post',
    reports: ['success'],
  },
  {
    ...ROLLED_BACK,
    ...NEEDY,
    name: 'killed_in_undo_after_the_first_change_was_undone',
    stops: [killBefore('undone', FAILING_VERSION)],
    recoveredBy: 'post',
    states: `${RESOLVED} installing rolled_back`,
  },
  {
    ...ROLLED_BACK,
    ...NEEDY,
    name: 'killed_in_undo_after_all_changes_were_undone',
    stops: [killBefore('state rolled_back', FAILING_VERSION)],
    recoveredBy: 'next run',
    states: `${RESOLVED} installing rolled_back`,
  },
  {
    ...ROLLED_BACK,
    ...NEEDY,
    name: 'killed_in_rolled_back',
    stops: [killBefore('end', FAILING_VERSION)],
    recoveredBy: 'post',
    states: `${RESOLVED} installing rolled_back`,
  },
  {
    ...ROLLED_BACK,
    ...NEEDY,
    name: 'killed_in_settling_a_rollback',
    stops: [SETTLING],
    hasEnded: true,
    recoveredBy: 'next run',
    states: `${RESOLVED} installing rolled_back`,
  },
  ...[1, 2, 3, 4, 5].map(
    (nth): KilledRow => ({
      ...ROLLED_BACK,
      name: `killed_in_recovery_before_its_record_${nth}`,
      stops: [killBefore('commit'), killRecoveryBefore(nth)],
      recoveredBy: nth % 2 === 0 ? 'post' : 'next run',
      states: `${STEPS_DONE} rolled_back`,
    }),
  ),
  {
    ...ROLLED_BACK,
    name: 'killed_in_recovery_as_it_settles',
    stops: [killBefore('commit'), killAtCall('journal.jsonl', 'unlink')],
    recoveredBy: 'next run',
    states: `${STEPS_DONE} rolled_back`,
  },
  {
    ...SUCCEEDED,
    name: 'killed_in_recovery_of_a_committed_deployment',
    stops: [killAtCall('snapshots/plugins/greeter/1-0.9.0', 'rename'), killAtCall('journal.jsonl', 'unlink')],
    recoveredBy: 'post',
    reports: ['success'],
  },
]

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
