import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { it } from 'node:test'
import { listDeployments, type StoredProjectReport } from '../../../hub/project/reports.ts'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import type { ErrorCode } from '../../../src/core/errors.ts'
import type { InstalledRow } from '../../../src/install/host/rows.ts'
import type { ProjectState } from '../../../src/project/deployment.ts'
import {
  assertNoSecret,
  assertNothingStrays,
  assertReported,
  commandsIn,
  listHost,
  readLocalReport,
} from './evidence.ts'
import { openProjectStage, type ProjectStage, projectFiles } from './project-stage.ts'
import {
  answersOf,
  goodOffer,
  type ProjectAnswers,
  type ProjectRoute,
  type SealedOffer,
  serveUntrustedProjectHub,
  TOKEN,
  type UntrustedProjectHub,
} from './untrusted-project-hub.ts'

/** Every report that the hub has accepted, oldest first. */
export function acceptedProjectReports({ store }: Pick<ProjectStage, 'store'>): StoredProjectReport[] {
  return listDeployments(store, 100).reverse()
}

/** The rows of `installed.json` by kind and id, such as `plugin cart`, in the order of the file. */
export function installedRows({ root }: { readonly root: string }): Record<string, InstalledRow> {
  const { installed } = JSON.parse(readFileSync(join(root, '.hub-deploy/installed.json'), 'utf8'))
  return Object.fromEntries((installed as InstalledRow[]).map(row => [`${row.kind} ${row.id}`, row]))
}

/** The version that a file of each part names, in the order cart, till, mailer. */
export function runningParts({ root }: { readonly root: string }, plugins = 'plugins'): string[] {
  return [`${plugins}/cart/src/main.py`, `${plugins}/till/src/main.py`, 'extensions/mailer/run.sh'].map(
    path => /\d+\.\d+\.\d+/.exec(readFileSync(join(root, path), 'utf8'))?.[0] ?? '',
  )
}

/**
 * A key in the forms in which it could leak: base64 with and without padding, base64url, hex, and the bytes themselves.
 */
export function formsOf(key: Buffer): string[] {
  const base64 = key.toString('base64')
  return [base64, base64.replace(/=+$/, ''), key.toString('base64url'), key.toString('hex'), key.toString('latin1')]
}

/**
 * Asserts that no secret of the stage, no text in `more`, and no key in any of its forms has leaked. Searches the files
 * of the host and of the runner's temporary folder, and these logs without the commands that mask secrets.
 */
export function assertKeptSecret(
  stage: ProjectStage,
  logs: readonly string[],
  keys: readonly Buffer[],
  more: readonly string[] = [],
): void {
  const secrets = [stage.devkey, stage.credential, ...keys.flatMap(formsOf), ...more]
  assertNoSecret(secrets, [stage.root, stage.workspace.temp], logs)
}

/** Asserts that the runner's temporary folder contains only the runner's own command files. */
export function assertTemporariesGone({ workspace }: Pick<ProjectStage, 'workspace'>): void {
  const strays = readdirSync(workspace.temp).filter(name => !name.startsWith('commands-'))
  assert.deepEqual(strays, [])
}

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

interface ProjectRefusal {
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

/**
 * The requests before the artifact is downloaded, before the artifact's key is requested, and before the artifact is
 * opened.
 */
export const TO_ARTIFACT: readonly ProjectRoute[] = ['auth', 'artifact']
export const TO_DOWNLOAD: readonly ProjectRoute[] = [...TO_ARTIFACT, 'download']
export const TO_KEY: readonly ProjectRoute[] = [...TO_DOWNLOAD, 'authorize']

/** A hub's offer or answers that must be refused, and the state and requests at which the run refuses them. */
export interface Lie extends Omit<ProjectRefusal, 'dek'> {
  /** The offer in place of a good project. */
  offer?: (stage: ProjectStage) => SealedOffer
  answers?: (stage: ProjectStage, offer: SealedOffer) => Partial<ProjectAnswers>
  /** A pattern that the error annotation must match; default any. */
  says?: RegExp
}

/** Opens a stage on whose host 1.0.0 is installed. */
export async function openDeployedStage(): Promise<ProjectStage> {
  const stage = await openProjectStage()
  await stage.publish('1.0.0', projectFiles('1.0.0'))
  const { exitCode, log } = await stage.deploy()
  assert.equal(exitCode, 0, log)
  return stage
}

/** Defines a test: the run refuses the lie in the expected state, and changes nothing. */
export function itRefuses(
  name: string,
  stageOf: () => ProjectStage,
  { offer = goodOffer, answers, says, ...refusal }: Lie,
): void {
  it(name, async t => {
    const stage = stageOf()
    const offered = offer(stage)
    const hub = await serveUntrustedProjectHub(t, answersOf(stage, offered, answers?.(stage, offered)))
    const { log } = await assertRefusesProject(stage, hub, { ...refusal, dek: offered.dek })
    assert.match(commandsIn(log, 'error').join(), says ?? /./)
  })
}
