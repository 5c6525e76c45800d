import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import type { ErrorCode } from '../../../src/core/errors.ts'
import { listTree } from '../../install/archive/directory-listing.ts'
import { acceptedReports, commandsIn, listHost, readLocalReport } from './evidence.ts'
import { SIGNING_SECRET, type Stage } from './stage.ts'

export interface Refusal {
  code: ErrorCode
  /** The state in which the run fails. */
  during: string
  /** The id of the plan's step that fails; default none. */
  step?: string
  /** The number of error annotations; default 1. A refused plan has one for each problem. */
  annotations?: number
  /** True if the hub accepts the report. Default: true. */
  reported?: boolean
}

const OUTPUT_NAMES = Object.keys(parse(readFileSync(join(import.meta.dirname, '../../../action.yml'), 'utf8')).outputs)
export const STACK_LINE = /^\s+at .+(:\d+:\d+|\(native\)|<anonymous>)/m

/** Runs a deployment that must be refused, change nothing on the host, and be reported consistently. */
export async function assertRefuses(
  stage: Stage,
  refusal: Refusal,
  inputs: Record<string, string> = {},
  run: Partial<ActionRun> = {},
): Promise<ActionResult> {
  const before = listHost(stage.root)
  const result = await stage.deploy(inputs, run)
  assertFailedOutputs(result, refusal)
  assertFailedReport(stage, result, refusal)
  assertOneCause(result, refusal)
  assertNoSecret(stage, result, Object.values(inputs))
  assert.deepEqual(listHost(stage.root), before)
  return result
}

function assertFailedOutputs(result: ActionResult, refusal: Refusal): void {
  const { outputs } = result
  assert.deepEqual(
    { exit: result.exitCode, signal: result.signal, code: outputs['error-code'], outcome: outputs['outcome'] },
    { exit: 1, signal: null, code: refusal.code, outcome: 'failed' },
    result.log,
  )
  assert.deepEqual(Object.keys(outputs).sort(), [...OUTPUT_NAMES].sort())
  assert.equal(outputs['changed'], 'false')
  assert.equal(outputs['state'], refusal.during === 'pending' ? 'pending' : 'failed')
  assert.equal(outputs['failed-step'], refusal.step ?? '')
  assert.equal(outputs['reported'], String(refusal.reported ?? true))
  assert.match(outputs['deployment-id'] ?? '', /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/)
}

/**
 * Asserts that the local report describes the refusal and has the id of the outputs, and that the hub's report agrees
 * with the local report.
 */
function assertFailedReport(stage: Stage, result: ActionResult, refusal: Refusal): void {
  const report = readLocalReport(result)
  const { error, states } = report
  assert.deepEqual([report.outcome, report.status, report.changed, report.rollback], ['failed', 'failed', false, null])
  assert.deepEqual([error?.code, error?.step], [refusal.code, refusal.step ?? null])
  assert.equal(report.deployment_id, result.outputs['deployment-id'])
  assert.equal(states.findLast(({ state }) => state !== 'failed')?.state, refusal.during)
  assert.equal(report.reported.accepted, refusal.reported ?? true)
  const reported = acceptedReports(stage).filter(row => row.started_at === report.started_at)
  assert.equal(reported.length, report.reported.accepted ? 1 : 0)
  for (const row of reported) {
    assert.deepEqual([row.kind, row.slug, row.status], [report.kind, report.slug, 'failed'])
    assert.deepEqual([row.completed_at, row.error_message], [report.completed_at, error?.message])
    assert.equal(row.version, report.version ?? report.requested_version ?? row.version)
  }
}

function assertOneCause({ log, summary }: ActionResult, refusal: Refusal): void {
  assert.equal(commandsIn(log, 'error').length, refusal.annotations ?? 1, log)
  assert.doesNotMatch(log, STACK_LINE)
  assert.match(summary, new RegExp(`<code>${refusal.code.replaceAll('_', '&#95;')}</code>`))
}

/**
 * Asserts that no secret of the stage, and no text in `more` that begins with `secret `, has leaked. Searches the
 * outputs, the summary, the reports on the hub, the files of the host and of the runner's temporary folder, and the log
 * without the commands that mask secrets.
 */
export function assertNoSecret(stage: Stage, result: ActionResult, more: readonly string[] = []): void {
  const secrets = [stage.apiKey, SIGNING_SECRET, ...more.filter(text => text.startsWith('secret '))]
  const log = result.log.split('\n').filter(line => !line.startsWith('::add-mask::'))
  const places: Record<string, unknown> = {
    log,
    outputs: result.outputs,
    summary: result.summary,
    host: listTree(stage.root),
    runner: listTree(stage.workspace.temp),
    hub: acceptedReports(stage),
  }
  for (const [place, content] of Object.entries(places)) {
    for (const secret of secrets) assert.ok(!JSON.stringify(content).includes(secret), `a secret is in ${place}`)
  }
}
