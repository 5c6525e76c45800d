import { randomUUID } from 'node:crypto'
import * as core from '@actions/core'
import { DeployError, DeploymentError, toDeployError } from '../core/errors.ts'
import { startGrace } from '../install/files/child-process.ts'
import { isSystemError, toHostError } from '../install/files/errors.ts'
import { removeTrash } from '../install/recovery/cleanup.ts'
import { recoverMainStep } from '../install/recovery/recover-host.ts'
import type { Flows } from '../install/reports/host.ts'
import { type LocalReport, redactReport } from '../install/reports/local-report.ts'
import type { RunResult } from '../install/reports/result.ts'
import { hostFor, type Incomplete, type Subject } from '../install/run/contract.ts'
import type { DeploymentTools, RunObserver } from '../install/run/deployment.ts'
import { checkRestored, type UnhealthyRestoration } from '../install/run/handover.ts'
import type { HostRequest, RunnerFacts, SecretKeeper } from '../install/transaction/record.ts'
import { createWire } from '../net/wire.ts'
import { Annotator } from './annotations.ts'
import { createRunnerFiles, type RunnerFiles, readRunnerFacts } from './files.ts'
import { type Connection, wireOptions } from './host-inputs.ts'
import type { GivenInputs } from './inputs.ts'
import { createRunnerLog, type Note, type RunnerLog } from './log.ts'
import { createSecretKeeper, type GivenSecrets } from './secret-keeper.ts'
import { buildDeploySummary } from './summaries/deploy.ts'
import { buildHeadline } from './summaries/outcome.ts'

/** The state in which a step that has the host saves the id of its deployment for its post step. */
const RUN_STATE = 'deployment-id'
/** The name of the state that is `true` once the main step has ended by itself. */
const ENDED_STATE = 'ended'
const HANDOVER_STATE = 'restored'
/**
 * A cancelled step's process exits at most this long after the step's end, even if a name lookup would keep it alive.
 */
const EXIT_AFTER_MS = 200

/** The inputs of a step that deploys. The problems list every input that is missing or malformed. */
export interface StepInputs<Request> extends GivenInputs {
  readonly request: Request
  readonly connection: Connection
}

/** Builds the action's outputs from the result of a run, as far as it is known. */
type OutputsOf = (result: RunResult) => Record<string, string>

/** The tools of a step that deploys nothing. */
export interface StepTools {
  readonly log: RunnerLog
  /** The notices and warnings in the log so far. */
  readonly notes: readonly Note[]
  readonly secrets: SecretKeeper
  /** Aborted, with the error `cancelled`, as soon as the runner cancels the step. */
  readonly signal: AbortSignal
  readonly now: () => Date
  readonly runner: RunnerFacts
  /** Sets the outputs that apply if the run is killed from now on. */
  setOutputs(outputs: Readonly<Record<string, string>>): void
  /** Saves a value for the post step. */
  saveState(name: string, value: string): void
}

/** The end of a step that deploys nothing. */
export interface ReadingStepEnd {
  /** All outputs but `error-code`. */
  readonly outputs: Readonly<Record<string, string>>
  readonly summary: string
  /** The ending in one sentence, for the last line of the log. */
  readonly sentence: string
  /** The error that fails the step; undefined if the step succeeded. */
  readonly error: DeployError | undefined
}

/**
 * Runs a step of an action that deploys nothing: sets the summary and the outputs, including `error-code`. Fails the
 * step, with annotations, if there is an error. A step that throws, or that would exit before it has ended, fails too.
 */
export async function runReadingStep<Inputs extends GivenSecrets>(
  readInputs: () => Inputs,
  act: (inputs: Inputs, tools: StepTools) => Promise<ReadingStepEnd>,
): Promise<void> {
  let step: Step | undefined
  try {
    const inputs = readInputs()
    step = new Step(inputs, ({ code }) => ({ 'error-code': code }))
    step.finish(await act(inputs, step.tools))
  } catch (error) {
    failStep(step, error)
  } finally {
    step?.close()
  }
}

/** Fails a step, even one that could not begin. The error of such a step contains no secret. */
export function failStep(step: Step | undefined, error: unknown): void {
  process.exitCode = 1
  if (step === undefined) new Annotator(text => text).annotateError(error)
  else step.fail(error)
}

/**
 * One step of a workflow: its tools and its end. Fails with `internal_error` if the process would exit without a
 * result. `outputsOfFailure` builds the outputs of a step that fails before it has any other outputs.
 */
export class Step {
  readonly tools: StepTools
  readonly #annotator: Annotator
  readonly #files: RunnerFiles
  readonly #outputsOfFailure: (error: DeployError) => Record<string, string>
  readonly #cancel = listenForCancel()
  #outputsOf: OutputsOf = () => ({})
  /** The facts about a deployment for the outputs if the run is killed; undefined before the deployment has begun. */
  #known: RunResult | undefined
  /** The recovery that this run made, in one sentence. */
  #recovered: string | undefined

  constructor(
    given: GivenSecrets & Partial<Pick<GivenInputs, 'warnings'>>,
    outputsOfFailure: (error: DeployError) => Record<string, string>,
  ) {
    const secrets = createSecretKeeper(given)
    const log = createRunnerLog(secrets.redact)
    this.#annotator = new Annotator(secrets.redact)
    this.#files = createRunnerFiles(log, secrets.redact)
    this.#outputsOfFailure = outputsOfFailure
    this.tools = {
      log,
      notes: log.notes,
      secrets,
      signal: this.#cancel.signal,
      now: () => new Date(),
      runner: readRunnerFacts(process.env),
      setOutputs: outputs => this.#files.setOutputs(outputs),
      saveState: (name, value) => this.#files.saveState(name, value),
    }
    for (const warning of given.warnings ?? []) log.warning(warning)
    process.once('beforeExit', this.#failUnsettled)
  }

  /** Returns the tools of a deployment. The outputs say at any time how far the deployment got. */
  deploymentTools(connection: Connection, flows: Flows, outputsOf: OutputsOf = () => ({})): DeploymentTools {
    const { log, signal } = this.tools
    this.#outputsOf = outputsOf
    const wire = wireOptions(connection, log)
    // The post step continues the main step's run.
    const deploymentId = core.getState(RUN_STATE) || randomUUID()
    return {
      ...this.tools,
      wires: { wire: createWire({ ...wire, signal }), reportWire: createWire(wire) },
      deploymentId,
      observer: this.#observe(deploymentId),
      grace: startGrace(signal),
      flows,
    }
  }

  /** Ends a step that deploys nothing. */
  finish({ outputs, summary, sentence, error }: ReadingStepEnd): void {
    const { log } = this.tools
    if (error !== undefined) log.did('failed')
    log.end()
    this.#files.setOutputs({ ...outputs, 'error-code': error?.code ?? '' })
    this.#files.setSummary(summary)
    if (error !== undefined) {
      process.exitCode = 1
      this.#annotator.annotateError(error)
    }
    log.info(`${sentence}.`)
  }

  /** Hands a deployment's result to the runner. Fails the step unless everything succeeded. */
  finishDeployment(result: RunResult): void {
    const { log } = this.tools
    log.end()
    this.#files.saveState(ENDED_STATE, 'true')
    if (result.unwritten !== undefined) log.warning(result.unwritten)
    this.#noteEnded(result)
    const { outcome } = result.report
    if (outcome !== 'success' || result.error !== undefined) {
      process.exitCode = 1
      const cause = result.error ?? new DeployError('internal_error', `The outcome is ${outcome}.`)
      this.#annotator.annotateFailure(cause, result.report)
    }
    log.info(`${buildHeadline(result).sentence}.`)
  }

  /** Adds the summary of a recovered deployment, if there was one. */
  finishRecovery(recovered: RunResult | undefined): void {
    const { log, notes } = this.tools
    log.end()
    if (recovered !== undefined) this.#files.setSummary(buildDeploySummary({ ...recovered, notes }))
  }

  /** Reports a restored version that the check found unhealthy, if there is one. */
  finishCheck(unhealthy: UnhealthyRestoration | undefined): void {
    if (unhealthy === undefined) return
    const { sentence, found } = unhealthy
    this.#annotator.annotateUnhealthy(sentence)
    if (found === undefined) return
    const { path: reportPath, report } = found
    this.#files.setSummary(buildDeploySummary({ report, reportPath, plannedSteps: [] }))
  }

  /** Fails the step, with the error as annotations. */
  fail(thrown: unknown): void {
    this.tools.log.end()
    process.exitCode = 1
    const { code, message } = toDeployError(thrown)
    const known = this.#known
    if (known === undefined) this.#files.setOutputs(this.#outputsOfFailure(toDeployError(thrown)))
    else this.#note({ ...known, report: { ...known.report, error: { code, message, step: null } } })
    this.#annotator.annotateError(thrown)
  }

  /** From now on, a cancel changes nothing. */
  ignoreCancel(): void {
    this.#cancel.stop()
  }

  /** Stops listening for a cancel. A cancelled process then soon exits, even if other work would keep it alive. */
  close(): void {
    this.#cancel.stop()
    process.off('beforeExit', this.#failUnsettled)
    if (this.tools.signal.aborted) setTimeout(() => process.exit(), EXIT_AFTER_MS).unref()
  }

  /** Fails the step if nothing is left to wake the process, which would then exit before the step has ended. */
  readonly #failUnsettled = (): void => {
    const message = 'This action stopped before its work had ended. This is a bug in this action: report it.'
    this.fail(new DeployError('internal_error', message))
  }

  #observe(deploymentId: string): RunObserver {
    const note = (report: LocalReport): void =>
      this.#note({ report: redactReport(report, this.tools.secrets), plannedSteps: [] })
    return {
      onBegun: report => {
        this.#files.saveState(RUN_STATE, deploymentId)
        note(report)
      },
      onProgress: note,
      onEnded: ended => this.#noteBeforeReport(ended),
      onRecovered: sentence => {
        this.#recovered = sentence
      },
    }
  }

  /**
   * Writes the outputs before the hub gets the report, because they must be right even if the run is killed in the
   * meantime. A cancelled run also writes its summary, because the runner will soon kill it.
   */
  #noteBeforeReport(ended: RunResult): void {
    const { signal } = this.tools
    this.#note(ended)
    if (signal.aborted) this.#noteEnded(ended)
    else signal.addEventListener('abort', () => this.#noteEnded(ended), { once: true })
  }

  #noteEnded(ended: RunResult): void {
    if (ended.handover !== undefined) this.#files.saveState(HANDOVER_STATE, ended.handover)
    this.#note(ended)
    const { notes, took } = this.tools.log
    this.#files.setSummary(buildDeploySummary({ ...ended, recovered: this.#recovered, notes, took }))
  }

  #note(result: RunResult): void {
    this.#known = result
    const outputs = this.#outputsOf(result)
    this.tools.secrets.know([outputs['install-path'], outputs['report-path']])
    this.#files.setOutputs(outputs)
  }
}

/** Builds the outputs of a deployment that failed before anything was known of it. */
export function outputsOfFailure({ code }: DeployError): Record<string, string> {
  return { outcome: 'failed', 'error-code': code }
}

/**
 * Listens for a cancel of the step. The runner sends SIGINT and, 7.5 s later, SIGTERM; the first signal cancels the
 * run.
 */
function listenForCancel(): { signal: AbortSignal; stop(): void } {
  const controller = new AbortController()
  const cancel = (signal: NodeJS.Signals): void =>
    controller.abort(new DeploymentError('cancelled', `The run was cancelled (${signal}) before it was complete.`))
  process.on('SIGINT', cancel)
  process.on('SIGTERM', cancel)
  return {
    signal: controller.signal,
    stop() {
      process.off('SIGINT', cancel)
      process.off('SIGTERM', cancel)
    },
  }
}

/**
 * Runs a post step. If the main step had the host, and was killed or left its journal, recovers the host. If a
 * cancelled main step restored a version, checks the health of that version. After a main step that never had the host,
 * there is nothing to do. Sets no outputs, because the runner drops the outputs of a post step. Fails the step if the
 * host could not be recovered or checked; never throws.
 */
export async function runPostStep<Request extends HostRequest>(
  readInputs: () => StepInputs<Incomplete<Request>>,
  flows: Flows,
  subject: Subject<Request>,
): Promise<void> {
  if (core.getState(RUN_STATE) === '') return
  const handover = core.getState(HANDOVER_STATE)
  const hasEnded = core.getState(ENDED_STATE) === 'true'
  let step: Step | undefined
  let request: Incomplete<Request> | undefined
  try {
    const inputs = readInputs()
    request = inputs.request
    step = new Step(inputs, () => ({}))
    // A cancel changes nothing here: a recovery is completed now or repeated later.
    step.ignoreCancel()
    const tools = step.deploymentTools(inputs.connection, flows)
    const sender = subject.sender(request, tools)
    const host = hostFor({ ...request, sender }, subject.named(request), tools)
    if (host === undefined) return
    step.finishRecovery(await recoverMainStep(host, { lockTimeoutMs: request.lockTimeoutMs, hasEnded }))
    if (handover !== '') step.finishCheck(await checkRestored(host, handover))
    await removeTrash(host)
  } catch (error) {
    const doing = `recovering or checking ${request?.projectRoot ?? 'the host'}`
    failStep(step, isSystemError(error) ? toHostError(error, doing) : error)
  } finally {
    step?.close()
  }
}

/** Returns the outputs that every deploying action has. An unknown value is empty. */
export function buildDeploymentOutputs(
  { report, reportPath, error }: RunResult,
  installPath: string | undefined,
): Record<string, string> {
  return {
    outcome: report.outcome,
    changed: String(report.changed),
    version: report.version ?? '',
    'previous-version': report.previous_version ?? '',
    'running-version': report.running_version ?? '',
    'artifact-sha256': report.artifact_sha256 ?? '',
    'deployment-id': report.deployment_id,
    'host-id': report.host_id,
    'install-path': installPath ?? '',
    'report-path': reportPath ?? '',
    reported: String(report.reported.accepted),
    'failed-step': report.error?.step ?? '',
    'error-code': report.error?.code ?? error?.code ?? '',
    state: report.state,
    'duration-ms': String(report.duration_ms),
  }
}
