import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parse } from 'yaml'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import type { ErrorCode } from '../../../src/core/errors.ts'
import { listTree } from '../../install/archive/directory-listing.ts'
import { commandsIn } from './evidence.ts'
import { assertNoSecret, STACK_LINE } from './refusal.ts'
import { SIGNING_SECRET, type Stage } from './stage.ts'
import { signatureOf } from './untrusted-hub.ts'

const OUTPUT_NAMES = Object.keys(
  parse(readFileSync(join(import.meta.dirname, '../../../verify/action.yml'), 'utf8')).outputs,
)
/** Inputs without a hub. */
export const NO_HUB = { 'hub-url': '', 'api-key': '' }
/** Inputs without an artifact. */
export const NO_ARTIFACT = { ...NO_HUB, 'signing-secret': '' }

/** Writes a file to the workspace, and returns the inputs with which the gate checks that file. */
export function fileInputs(stage: Stage, bytes: Buffer, path = 'greeter.zip'): Record<string, string> {
  const place = join(stage.workspace.path, path)
  mkdirSync(dirname(place), { recursive: true })
  writeFileSync(place, bytes)
  return { ...NO_HUB, 'artifact-path': path, signature: signatureOf(bytes) }
}

/** Runs a gate that must pass, change nothing on the host, and leave no file in the runner's temporary folder. */
export async function assertVerifies(
  stage: Stage,
  inputs: Record<string, string> = {},
  run: Partial<ActionRun> = {},
): Promise<ActionResult> {
  const before = listTree(stage.root)
  const result = await stage.verify(inputs, run)
  assert.deepEqual(
    [result.exitCode, result.outputs['verified'], result.outputs['error-code']],
    [0, 'true', ''],
    result.log,
  )
  assert.deepEqual(commandsIn(result.log, 'error'), [])
  assertTraceless(stage, result, before)
  return result
}

/** The expected result of a gate that fails. */
export interface GateRefusal {
  readonly code: ErrorCode
  /** The output `verified`; default `false`. */
  readonly verified?: string
  /** The number of error annotations; default 1. A refused plan has one for each problem. */
  readonly annotations?: number
}

/**
 * Runs a gate that must fail, report the failure in its outputs, annotations and summary, change nothing on the host,
 * and leave no file in the runner's temporary folder.
 */
export async function assertFails(
  stage: Stage,
  { code, verified = 'false', annotations = 1 }: GateRefusal,
  inputs: Record<string, string> = {},
  run: Partial<ActionRun> = {},
): Promise<ActionResult> {
  const before = listTree(stage.root)
  const result = await stage.verify(inputs, run)
  const { outputs, log, summary } = result
  assert.deepEqual([result.exitCode, outputs['verified'], outputs['error-code']], [1, verified, code], log)
  assert.equal(commandsIn(log, 'error').length, annotations, log)
  assert.doesNotMatch(log, STACK_LINE)
  assert.match(summary, new RegExp(`<code>${code.replaceAll('_', '&#95;')}</code>`))
  assertTraceless(stage, result, before)
  return result
}

function assertTraceless(stage: Stage, result: ActionResult, hostBefore: Record<string, string>): void {
  assert.deepEqual(Object.keys(result.outputs).toSorted(), OUTPUT_NAMES.toSorted())
  assertNoSecret(stage, result)
  assert.deepEqual(leftIn(stage), [])
  assert.deepEqual(listTree(stage.root), hostBefore)
}

/** The names in the runner's temporary folder, apart from the runner's own files. */
export function leftIn({ workspace }: Stage): string[] {
  return readdirSync(workspace.temp).filter(name => !name.startsWith('commands-'))
}

export { SIGNING_SECRET }
