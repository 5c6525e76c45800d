import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { after, describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import { waitUntil } from '../../clocks.ts'
import { byExtent } from '../../extent.ts'
import { MOMENTS, type Moment } from '../harness/cancel-moments.ts'
import { type CancelScene, type Contract, hangingFile, openCancelScene } from '../harness/cancel-scene.ts'
import { assertReported, commandsIn, listLive, readReports } from '../harness/evidence.ts'
import { readPid, waitForEnd } from '../harness/processes.ts'
import { randomFrom } from '../harness/random.ts'

const IS_FULL = byExtent({ sample: false, ci: false, full: true })
const SEED = process.env['CANCEL_SEED'] ?? randomUUID()
const SAMPLE = byExtent({ sample: 1, ci: 10 })

interface Row {
  readonly contract: Contract
  readonly moment: Moment
}

const ROWS: readonly Row[] = (['marketplace', 'project'] as const).flatMap(contract =>
  MOMENTS.filter(({ contracts }) => contracts?.includes(contract) ?? true).map(moment => ({ contract, moment })),
)

function sample(): readonly Row[] {
  const random = randomFrom(SEED)
  const left = [...ROWS]
  return Array.from({ length: SAMPLE }, () => left.splice(random.below(left.length), 1)).flat()
}

/** The times from SIGINT to the last write to the command files or the local report, and to the end of the process. */
const seconds: { toLastOutput: number[]; toExit: number[] } = { toLastOutput: [], toExit: [] }

/**
 * Describes the times in `seconds`, which the test only prints. Because a busy machine takes longer, the test requires
 * only that the run ends by itself.
 */
function describeSeconds(): string {
  const figures = Object.entries(seconds).map(([name, values]) => {
    const sorted = values.toSorted((a, b) => a - b)
    return `${name}: median ${sorted[Math.floor(sorted.length / 2)]?.toFixed(2)} s, worst ${sorted.at(-1)?.toFixed(2)} s`
  })
  return `${seconds.toExit.length} cancelled runs. ${figures.join('; ')}. CANCEL_SEED=${SEED}`
}

describe('a run that is cancelled while it', { concurrency: 2 }, () => {
  after(() => process.stdout.write(`${describeSeconds()}\n`))
  for (const { contract, moment } of IS_FULL ? ROWS : sample()) {
    it(`${moment.name} ends by itself and reports the truth, and post completes it (${contract})`, async t => {
      const scene = await openCancelScene(t, contract)
      try {
        await cancelAndComplete(t, scene, moment)
      } finally {
        await scene.close()
      }
    })
  }
})

async function cancelAndComplete(t: TestContext, scene: CancelScene, moment: Moment): Promise<void> {
  const before = listLive(scene.root)
  const heard = scene.reported().length
  const result = await cancelAt(t, scene, moment)
  assertEndedByItself(result, moment)
  if (moment.outcome !== 'success') assert.deepEqual(listLive(scene.root), before)
  if (existsSync(hangingFile(scene))) await waitForEnd(readPid(hangingFile(scene)))
  const report = assertReported(scene.root, result)
  assertTrue(scene, moment, { result, report })
  const status = `${report.version ?? 'latest'} ${report.status}`
  const expected = [...(moment.recovered === undefined ? [] : [moment.recovered]), status]
  if (!isUnreported(moment, result)) assert.deepEqual(reportedSince(scene, heard), expected)
  scene.unanswered.clear()
  const post = await scene.post(result.state)
  assert.deepEqual([post.exitCode, post.signal], [0, null], post.log)
  assertCompleted(scene, moment, { result, post })
  if (!reportedSince(scene, heard).includes(status)) assertKeptForTheNextRun(scene, result)
  assert.ok(reportedSince(scene, heard).length <= expected.length + 1)
}

/**
 * True if the run ends before the hub has accepted its report: because the hub does not answer or, on a busy machine,
 * because it answers too late. In the second case, the run must say that it has not reported.
 */
function isUnreported(moment: Moment, { outputs, log }: ActionResult): boolean {
  if (moment.isUnreported) return true
  return !IS_FULL && outputs['reported'] === 'false' && log.includes('did not answer within the time')
}

async function cancelAt(t: TestContext, scene: CancelScene, moment: Moment): Promise<ActionResult> {
  const isThere = await moment.arrange(scene, t)
  let log = ''
  let pid = 0
  const run = scene.run({
    onStart(started) {
      pid = started
    },
    onLog(more) {
      log += more
    },
  })
  const ended = run.then(({ log }) => assert.fail(`the run ended before it could be cancelled:\n${log}`))
  await Promise.race([ended, waitUntil(`the run ${moment.name}`, () => isThere(log))])
  ended.catch(() => {})
  const cancelledAt = Date.now()
  const escalation = cancel(pid)
  const result = await run.finally(() => escalation.forEach(clearTimeout))
  const toExit = (Date.now() - cancelledAt) / 1000
  const toLastOutput = (scene.lastWrite() - cancelledAt) / 1000
  seconds.toLastOutput.push(toLastOutput)
  seconds.toExit.push(toExit)
  t.diagnostic(`last output after ${toLastOutput.toFixed(2)} s, exit after ${toExit.toFixed(2)} s`)
  return result
}

/**
 * With SWEEP=full, sends all signals that the runner sends, at the same times. Otherwise sends only SIGINT, so that no
 * run is killed on a slow machine.
 */
function cancel(pid: number): NodeJS.Timeout[] {
  process.kill(pid, 'SIGINT')
  if (!IS_FULL) return []
  return [setTimeout(() => process.kill(pid, 'SIGTERM'), 7500), setTimeout(() => process.kill(pid, 'SIGKILL'), 10_000)]
}

function assertEndedByItself({ exitCode, signal, log, outputs, summary }: ActionResult, moment: Moment): void {
  const { outcome, error = 'cancelled' } = moment
  assert.deepEqual([outputs['outcome'], outputs['error-code']], [outcome, error], log)
  assert.deepEqual([exitCode, signal], [outcome === 'success' ? 0 : 1, null], log)
  assert.match(summary, /^### /)
  assert.equal(summary.split('\n### ').length, 1, 'the run must write one summary')
  assert.equal(commandsIn(log, 'error').length, outcome === 'success' ? 0 : 1, log)
}

function assertKeptForTheNextRun({ root }: CancelScene, { outputs }: ActionResult): void {
  const waiting = readdirSync(join(root, '.hub-deploy/outbox')).join()
  assert.ok(
    waiting.includes(outputs['deployment-id'] ?? 'none'),
    `the outbox must have this run's report, but has: ${waiting}`,
  )
}

interface Ended {
  readonly result: ActionResult
  readonly report: LocalReport
}

function assertTrue(scene: CancelScene, moment: Moment, { result, report }: Ended): void {
  const { outputs, log } = result
  const running = moment.outcome === 'success' ? '2.0.0' : '1.0.0'
  assert.deepEqual([outputs['running-version'], report.running_version], [running, running], log)
  assert.equal(outputs['previous-version'], '1.0.0')
  assert.equal(outputs['reported'], String(!isUnreported(moment, result)), log)
  if (report.error !== null && report.error.step !== null)
    assert.ok(report.error.message.startsWith(`${report.error.step}: `))
  if (moment.outcome === 'rolled_back') assert.equal(report.rollback?.healthy, null)
  assert.equal(existsSync(join(scene.root, '.hub-deploy/journal.jsonl')), moment.isUnfinished === true)
}

interface Completed {
  readonly result: ActionResult
  readonly post: ActionResult
}

function assertCompleted(scene: CancelScene, moment: Moment, { result, post }: Completed): void {
  const { outcome, healthy } = moment
  const report = readReports(scene.root).get(result.outputs['deployment-id'] ?? '')
  assert.equal(report?.outcome, outcome)
  if (outcome === 'rolled_back') assert.equal(report.rollback?.healthy, healthy ?? null, post.log)
  assert.equal(commandsIn(post.log, 'error').length, healthy === false ? 1 : 0, post.log)
  assert.equal(commandsIn(post.log, 'warning').length, 0, post.log)
  assert.equal(existsSync(join(scene.root, '.hub-deploy/journal.jsonl')), false)
  const running = scene.standIns.running()
  if (running !== undefined) assert.match(running, outcome === 'success' ? /2\.0\.0/ : /1\.0\.0/)
  if (scene.standIns.stateOf(`${scene.id}.service`) !== undefined)
    assert.equal(scene.standIns.stateOf(`${scene.id}.service`), 'active')
}

function reportedSince(scene: CancelScene, heard: number): string[] {
  return scene.reported().slice(heard)
}
