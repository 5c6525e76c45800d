import assert from 'node:assert/strict'
import type { ActionResult } from '../../../local/runner.ts'
import type { ErrorCode } from '../../../src/core/errors.ts'
import type { ProjectState } from '../../../src/project/states.ts'
import { commandsIn, listHost, readLocalReport } from './evidence.ts'
import { assertNothingStrays, assertReported } from './invariants.ts'
import { assertKeptSecret, assertTemporariesGone } from './project-evidence.ts'
import type { ProjectStage } from './project-stage.ts'
import { type ProjectRoute, TOKEN, type UntrustedProjectHub } from './untrusted-project-hub.ts'

export interface ProjectRefusal {
  code: ErrorCode
  /** The state in which the run refuses the hub. */
  during: ProjectState
  /** The requests to the hub before the report, in order. */
  asked: readonly ProjectRoute[]
  inputs?: Record<string, string>
  /** The key that the hub releases, if the run gets that far. */
  dek?: Buffer
}

const STACK_LINE = /^\s+at .+(:\d+:\d+|\(native\)|<anonymous>)/m

/**
 * Deploys from a hub that the run must refuse in the state `during`, after the requests `asked`. The hub must get no
 * further request except one report of the failure. The host must be as it was, no temporary file may be left over, and
 * no secret may have leaked.
 */
export async function assertRefusesProject(
  stage: ProjectStage,
  hub: UntrustedProjectHub,
  { code, during, asked, inputs = {}, dek }: ProjectRefusal,
): Promise<ActionResult> {
  const before = listHost(stage.root)
  const result = await stage.deploy({ 'hub-url': hub.url, version: '2.0.0', ...inputs })
  const report = readLocalReport(result)
  assert.deepEqual([report.error?.code, report.outcome, report.changed], [code, 'failed', false], result.log)
  assert.equal(report.states.findLast(({ state }) => state !== 'failed')?.state, during)
  assert.deepEqual(hub.asked(), [...asked, 'report'])
  assert.partialDeepStrictEqual(hub.callsTo('report')[0]?.body, {
    deployment_id: report.deployment_id,
    status: 'failed',
    version: report.version ?? report.requested_version,
  })
  assert.deepEqual(listHost(stage.root), before)
  assertReported(stage.root, result)
  assertNothingStrays(stage.root)
  assertTemporariesGone(stage)
  const [error, ...more] = commandsIn(result.log, 'error')
  assert.match(error ?? '', new RegExp(`title=${code}\\b`), result.log)
  assert.deepEqual(more, [])
  assert.doesNotMatch(result.log, STACK_LINE)
  assertKeptSecret(stage, [result.log, result.summary], dek === undefined ? [] : [dek], [TOKEN])
  return result
}
