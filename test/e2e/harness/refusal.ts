import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parse } from 'yaml'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import type { ErrorCode } from '../../../src/core/errors.ts'
import { listTree } from '../../folders.ts'
import { acceptedReports, commandsIn, listHost, readLocalReport } from './evidence.ts'
import { PLUGIN_PLAN, pluginFiles, SERVICE_PLAN, SIGNING_SECRET, type Stage } from './stage.ts'
import {
  type Answer,
  type Answers,
  answerJson,
  pluginZip,
  serveArtifact,
  signatureOf,
  switchProtocols,
} from './untrusted-hub.ts'

interface Refusal {
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
const STACK_LINE = /^\s+at .+(:\d+:\d+|\(native\)|<anonymous>)/m

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

const bytes = pluginZip()
const flipped = Buffer.from(bytes).fill((bytes[40] ?? 0) ^ 1, 40, 41)
const signature = signatureOf(bytes)

/** Breaks the connection after the head of the file, and then sends the rest of another file under the same ETag. */
const mixFiles: Answer = (response, { headers }) => {
  const [end, total] = [bytes.length - 1, bytes.length]
  const rest = { etag: '"file"', 'content-range': `bytes 20-${end}/${total}`, 'content-length': total - 20 }
  if (headers.range) response.writeHead(206, rest).end(flipped.subarray(20))
  else
    response
      .writeHead(200, { etag: '"file"', 'content-length': total, 'x-signature': signature })
      .write(bytes.subarray(0, 20), () => response.socket?.end())
}

/** Lies of a hub, each with the code and, unless it is `fetching`, the state of the refusal. */
export const LIES: Record<string, [Partial<Answers>, ErrorCode, string?]> = {
  'promises more than it sends': [
    { artifact: response => response.writeHead(200, { 'content-length': bytes.length + 5 }).end(bytes) },
    'network',
  ],
  'sends the rest of another file after a break': [{ artifact: mixFiles }, 'signature_mismatch', 'verifying_signature'],
  'sends an encoded body': [{ artifact: serveArtifact(bytes, { 'content-encoding': 'gzip' }) }, 'bad_response'],
  'answers 204': [{ artifact: response => response.writeHead(204).end() }, 'bad_response'],
  'switches to another protocol for the record': [{ detail: switchProtocols }, 'bad_response'],
  'switches to another protocol for the artifact': [{ artifact: switchProtocols }, 'bad_response'],
  'sends no bytes': [{ artifact: serveArtifact(Buffer.alloc(0)) }, 'invalid_archive', 'extracting'],
  'sends two signatures': [
    {
      artifact: response => {
        response.setHeader('x-signature', [signatureOf(bytes), signatureOf(bytes)])
        response.end(bytes)
      },
    },
    'invalid_signature_format',
    'verifying_signature',
  ],
  'sends an HTML page instead of a JSON error': [
    {
      artifact: response =>
        response.writeHead(404, { 'content-type': 'text/html' }).end('<script>alert(1)</script>'.repeat(100)),
    },
    'not_found',
  ],
  'sends more than a mebibyte of JSON': [
    { detail: answerJson(200, { latest_version: '2.0.0', more: 'x'.repeat(1024 * 1024) }) },
    'bad_response',
  ],
  'sends an HTML page instead of a record': [{ detail: response => response.end('<h1>Welcome</h1>') }, 'bad_response'],
  'names a version that is a path': [{ detail: answerJson(200, { latest_version: '../../x' }) }, 'bad_response'],
  'names a version that is a number': [{ detail: answerJson(200, { latest_version: 2 }) }, 'bad_response'],
  'names no version': [{ detail: answerJson(200, { latest_version: null }) }, 'no_published_version'],
  'has an error that is not text': [{ artifact: answerJson(410, { error: { deep: [1] } }) }, 'artifact_unavailable'],
}

/** Artifacts, each with the signature header that the hub sends, and with the code of the refusal. */
export const WRONGLY_SIGNED: Record<string, [Buffer, string | undefined, ErrorCode]> = {
  'without a signature': [bytes, undefined, 'missing_signature'],
  'with an empty signature': [bytes, '', 'missing_signature'],
  'with another algorithm': [bytes, signature.replace('hmac_sha256', 'hmac_md5'), 'invalid_signature_format'],
  'with a signature that is cut short': [bytes, signature.slice(0, -1), 'invalid_signature_format'],
  'with a bare digest': [bytes, signature.replace('hmac_sha256:', ''), 'invalid_signature_format'],
  'with one changed bit': [flipped, signature, 'signature_mismatch'],
  'with an extra byte': [Buffer.concat([bytes, Buffer.alloc(1)]), signature, 'signature_mismatch'],
  'with a signature made with another secret': [bytes, signatureOf(bytes, 'another secret'), 'signature_mismatch'],
}

/** Files that are not a plugin of version 2.0.0, each with the code of the refusal. */
export const WRONG_PLUGINS: Record<string, [Record<string, string>, ErrorCode]> = {
  'is not a plugin': [{ 'README.md': 'hello' }, 'not_a_plugin'],
  'has a plugin.yaml of more than 32 KiB': [
    pluginFiles('2.0.0', { 'plugin.yaml': `version: "2.0.0"\n#${' '.repeat(32 * 1024)}\n` }),
    'invalid_manifest',
  ],
  'has a plugin.yaml that costs too much to read': [
    pluginFiles('2.0.0', { 'plugin.yaml': `version: "2.0.0"\na: [${','.repeat(30_000)}\n` }),
    'invalid_manifest',
  ],
  'has a plugin.yaml in which other YAML readers find another mode': [
    pluginFiles('2.0.0', { 'plugin.yaml': 'version: "2.0.0"\n# hi\u0085execution_mode: trusted\n' }),
    'invalid_manifest',
  ],
  'has a folder named plugin.yaml': [{ 'plugin.yaml/x': '', 'src/main.py': '' }, 'not_a_plugin'],
  'has a plugin.yaml of another version': [pluginFiles('2.0.1'), 'version_mismatch'],
  'has a plugin.yaml that is a list': [{ 'plugin.yaml': '- 1\n' }, 'not_a_plugin'],
}

/** Plans for the plugin greeter that are refused, each with the line and column of every problem. */
export const REFUSED_PLANS: Record<string, { plan: string; at: [number, number][] }> = {
  'is for another project': { plan: PLUGIN_PLAN.replace('project_id: greeter', 'project_id: clock'), at: [[2, 13]] },
  'is not YAML': { plan: 'format_version: "1"\nsteps: [\n', at: [[3, 1]] },
  'has an unknown action and a key that no step has': {
    plan: `${PLUGIN_PLAN}  - {id: shell, action: run}\n  - {id: again, action: prepare, command: reboot}\n`,
    at: [
      [7, 25],
      [8, 34],
    ],
  },
  'has steps that depend on each other': {
    plan: `${PLUGIN_PLAN}  - {id: a, action: prepare, depends_on: [b]}\n  - {id: b, action: prepare, depends_on: [a]}\n`,
    at: [[8, 43]],
  },
  'installs an extension instead of a plugin': { plan: SERVICE_PLAN.replaceAll('clock', 'greeter'), at: [[5, 5]] },
  'installs nothing': {
    plan: 'format_version: "1"\nproject_id: greeter\nversion: "1"\nsteps:\n  - {id: a, action: prepare}\n',
    at: [[4, 1]],
  },
  'needs a supervisor that is not configured': {
    plan: `${PLUGIN_PLAN}  - {id: up, action: restart, depends_on: [files]}\n`,
    at: [[7, 5]],
  },
  'needs a provision command that is not configured': {
    plan: `${PLUGIN_PLAN}  - {id: database, action: provision, plugin: greeter}\n`,
    at: [[7, 5]],
  },
  'seeds settings from a file that the artifact lacks': {
    plan: `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/none, depends_on: [files]}\n`,
    at: [[7, 5]],
  },
}

const GATE_OUTPUT_NAMES = Object.keys(
  parse(readFileSync(join(import.meta.dirname, '../../../verify/action.yml'), 'utf8')).outputs,
)
/** Inputs without a hub. */
const NO_HUB = { 'hub-url': '', 'api-key': '' }
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
interface GateRefusal {
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
  // A cancelled step does not take the time to remove many files.
  if (code === 'cancelled') await stage.verify({}, { phase: 'post', state: result.state })
  assertTraceless(stage, result, before)
  return result
}

function assertTraceless(stage: Stage, result: ActionResult, hostBefore: Record<string, string>): void {
  assert.deepEqual(Object.keys(result.outputs).toSorted(), GATE_OUTPUT_NAMES.toSorted())
  assertNoSecret(stage, result)
  assert.deepEqual(leftIn(stage), [])
  assert.deepEqual(listTree(stage.root), hostBefore)
}

/** The names in the runner's temporary folder, apart from the runner's own files. */
export function leftIn({ workspace }: Stage): string[] {
  return readdirSync(workspace.temp).filter(name => !name.startsWith('commands-'))
}

export { SIGNING_SECRET }
