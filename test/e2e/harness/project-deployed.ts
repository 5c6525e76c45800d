import assert from 'node:assert/strict'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { commandsIn } from './evidence.ts'
import { assertNothingStrays } from './invariants.ts'
import { installedRows } from './project-evidence.ts'
import type { ProjectStage } from './project-stage.ts'

/** Runs a deployment that must succeed. */
export async function deployed(
  stage: ProjectStage,
  inputs: Record<string, string> = {},
  run: Partial<ActionRun> = {},
): Promise<ActionResult> {
  const result = await stage.deploy(inputs, run)
  assert.deepEqual([result.exitCode, result.outputs['outcome']], [0, 'success'], result.log)
  assert.equal(commandsIn(result.log, 'error').length, 0)
  assertNothingStrays(stage.root)
  return result
}

/** The outputs `changed`, `previous-version` and `version`. */
export function changesOf({ outputs }: ActionResult): (string | undefined)[] {
  return [outputs['changed'], outputs['previous-version'], outputs['version']]
}

/** The names of the recorded snapshots of a part, such as `plugin cart`; oldest first. */
export function snapshotsOf(stage: ProjectStage, place: string): string[] {
  return installedRows(stage)[place]?.snapshots.map(({ name }) => name) ?? []
}
