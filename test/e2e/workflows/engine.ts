import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { HANG_LIMIT_MS } from '../../extent.ts'

/** A run of one workflow by `act`, the engine: each job runs as a job of a self-hosted runner on this machine. */
export interface WorkflowRun {
  /** The operator's repository; a checkout copies it. */
  repository: string
  /** The workflow's path in the repository. */
  workflow: string
  event: string
  /** Default: the branch `main`. */
  ref?: string
  /** Default: this process's. */
  path?: string
  /** The event's payload, with the inputs of a `workflow_dispatch`. */
  payload?: object
  secrets: Readonly<Record<string, string>>
  /** The labels that have a runner. A job that asks for another label does not run. */
  runners: readonly string[]
  /** The folder that stands in for each reference to an action or workflow, for example for `OWNER/hub-deploy@v1`. */
  references: Readonly<Record<string, string>>
  /** An empty folder for the engine's files. */
  folder: string
}

export interface WorkflowResult {
  exitCode: number | null
  /** The jobs that ran, in the order in which they began. */
  jobs: JobRun[]
  /** The output of the engine and the steps, with a job's id before each line. */
  log: string
  /** Everything that the engine wrote, except for the lines in which it confirms its masks. */
  written: string
}

export interface JobRun {
  id: string
  /** `matrix.host` of a leg. */
  host?: string
  /** Undefined if the job did not end. */
  result?: string
  steps: StepRun[]
}

export interface StepRun {
  /** The step's `id`, or else its number in the job. */
  id: string
  /** The step's name in the workflow, or else its action, or else its command. */
  name: string
  stage: 'Main' | 'Post'
  result?: string
  outputs: Record<string, string>
  summary?: string
}

/** A line of the engine's output (`--json`). */
interface LogRecord {
  msg: string
  job?: string
  jobID?: string
  jobResult?: string
  matrix?: { host?: string } | null
  step?: string
  stepID?: string[]
  stage?: string
  stepResult?: string
  command?: string
  name?: string
  arg?: string
  content?: string
}

/** The reason why no workflow can be executed here; false if one can. */
export function whyNoEngine(): string | false {
  const folders = (process.env['PATH'] ?? '').split(delimiter)
  return folders.some(folder => existsSync(join(folder, 'act'))) ? false : 'the workflow engine act is not on PATH'
}

/**
 * Executes a workflow. The engine uses no network itself: it runs no container, starts no server and takes every action
 * from `references`. It does not mask secrets, so that the log shows whether the actions print any.
 */
export async function runWorkflow(run: WorkflowRun): Promise<WorkflowResult> {
  const child = spawn('act', [run.event, ...engineOptions(run)], {
    cwd: run.repository,
    env: engineEnvironment(run),
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: HANG_LIMIT_MS,
    killSignal: 'SIGKILL',
  })
  const log = await readToEnd(child)
  const records = log.split('\n').filter(Boolean).map(parseRecord)
  const elsewhere = records.filter(({ msg }) => msg.startsWith('LocalRepositoryCache not matched'))
  assert.deepEqual(elsewhere, [], 'every action must come from `references`: nothing is downloaded')
  return {
    exitCode: child.exitCode,
    jobs: readJobs(records),
    log: records.map(({ jobID = '', msg }) => `${jobID}: ${msg.trimEnd()}`).join('\n'),
    written: records
      .filter(({ command }) => command !== 'add-mask')
      .map(record => JSON.stringify(record))
      .join('\n'),
  }
}

/** The jobs with their results, for example `canary: success`, `hosts (app-2): failure`. */
export function outline({ jobs }: WorkflowResult): string[] {
  return jobs.map(({ id, host, result }) => `${id}${host === undefined ? '' : ` (${host})`}: ${result}`)
}

/** The outputs of the first of our actions that ran in this job; without `job`, in any job. */
export function outputsOf({ jobs }: WorkflowResult, job?: string): Record<string, string> {
  const steps = jobs.filter(({ id }) => job === undefined || id === job).flatMap(({ steps }) => steps)
  return steps.find(({ outputs }) => 'error-code' in outputs)?.outputs ?? {}
}

function engineOptions({ repository, workflow, runners, references, folder, ...run }: WorkflowRun): string[] {
  const eventFile = writeIn(folder, 'event.json', JSON.stringify(run.payload ?? {}))
  // Without a token, the engine would look for this user's own token.
  const lines = Object.entries({ GITHUB_TOKEN: 'of the run', ...run.secrets }).map(
    ([name, value]) => `${name}=${value}\n`,
  )
  const secretFile = writeIn(folder, 'secrets', lines.join(''))
  const none = writeIn(folder, 'none', '')
  return [
    ...['--directory', repository, '--workflows', join(repository, workflow), '--eventpath', eventFile],
    ...['--secret-file', secretFile, '--var-file', none, '--env-file', none, '--input-file', none],
    ...runners.flatMap(label => ['--platform', `${label}=-self-hosted`]),
    ...Object.entries(references).flatMap(([name, path]) => ['--local-repository', `${name}=${path}`]),
    ...['--action-cache-path', join(folder, 'cache'), '--action-offline-mode', '--container-daemon-socket', '-'],
    ...['--no-cache-server', '--cache-server-addr', '127.0.0.1', '--artifact-server-addr', '127.0.0.1'],
    ...['--env', 'GITHUB_REPOSITORY=example/operations', '--env', `GITHUB_REF=${run.ref ?? 'refs/heads/main'}`],
    ...['--env', `SHA_REF=${'0'.repeat(40)}`, '--json', '--insecure-secrets', '--rm', '--concurrent-jobs', '1'],
  ]
}

/** The steps also see this environment. It takes only PATH from this process, and puts this node's folder first. */
function engineEnvironment({ folder, path = process.env['PATH'] ?? '' }: WorkflowRun): Record<string, string> {
  const home = join(folder, 'home')
  mkdirSync(home)
  return {
    PATH: [dirname(process.execPath), path].join(delimiter),
    HOME: home,
    TMPDIR: home,
    XDG_CACHE_HOME: join(home, 'cache'),
    XDG_CONFIG_HOME: join(home, 'config'),
  }
}

async function readToEnd(child: ChildProcess): Promise<string> {
  let log = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', text => {
      log += text
    })
  }
  await once(child, 'close')
  return log
}

function parseRecord(line: string): LogRecord {
  return line.startsWith('{') ? (JSON.parse(line) as LogRecord) : { msg: line }
}

function readJobs(records: readonly LogRecord[]): JobRun[] {
  const jobs = new Map<string, JobRun>()
  for (const record of records) {
    if (record.jobID === undefined || record.job === undefined) continue
    const job = jobs.get(record.job) ?? newJob(record)
    jobs.set(record.job, job)
    if (record.jobResult !== undefined) job.result = record.jobResult
    noteStep(job, record)
  }
  // A job that calls a workflow has no steps.
  return [...jobs.values()].filter(({ steps, result }) => steps.length > 0 || result !== undefined)
}

function newJob({ jobID = '', matrix }: LogRecord): JobRun {
  return { id: jobID, steps: [], ...(matrix?.host === undefined ? {} : { host: matrix.host }) }
}

function noteStep(job: JobRun, record: LogRecord): void {
  const step = findStep(job, record)
  if (step === undefined) return
  const { stepResult, command, name = '', arg = '', content } = record
  if (stepResult !== undefined) step.result = stepResult
  if (command === 'set-output') step.outputs[name] = arg
  if (command === 'summary' && content !== undefined) step.summary = content
}

function findStep({ steps }: JobRun, { step: name, stepID, stage }: LogRecord): StepRun | undefined {
  const id = stepID?.[0]
  if (name === undefined || id === undefined || (stage !== 'Main' && stage !== 'Post')) return undefined
  const known = steps.find(step => step.id === id && step.stage === stage)
  if (known !== undefined) return known
  const begun: StepRun = { id, name, stage, outputs: {} }
  steps.push(begun)
  return begun
}

function writeIn(folder: string, name: string, text: string): string {
  const path = join(folder, name)
  writeFileSync(path, text)
  return path
}
