import { randomUUID } from 'node:crypto'
import * as core from '@actions/core'
import { DeployError } from '../core/errors.ts'
import type { DeploymentTools, EndedDeployment } from '../install/deployment/deployment.ts'
import type { UnhealthyRestoration } from '../install/deployment/handover.ts'
import { startGrace } from '../install/files/grace.ts'
import type { ClosedDeployment } from '../install/reports/close.ts'
import type { Flows } from '../install/reports/host.ts'
import { type LocalReport, redactReport } from '../install/reports/local-report.ts'
import { createWire } from '../net/wire.ts'
import { Annotator } from './annotations.ts'
import { listenForCancel } from './cancel.ts'
import { readRunnerFacts } from './environment.ts'
import { type Connection, wireOptions } from './inputs/connection.ts'
import type { GivenInputs } from './inputs/input-reader.ts'
import { createRunnerFiles, type RunnerFiles } from './runner-files.ts'
import { createRunnerLog, type RunnerLog } from './runner-log.ts'
import { createSecretKeeper } from './secret-keeper.ts'
import { buildDeploySummary } from './summaries/deploy/deploy-summary.ts'
import { describeEnding } from './summaries/deploy/outcome-sentence.ts'

/** The state in which a step that has the host saves the id of its deployment for its post step. */
export const RUN_STATE = 'deployment-id'
/** The name of the state that is `true` once the main step has ended by itself. */
export const ENDED_STATE = 'ended'
export const HANDOVER_STATE = 'restored'
/**
 * A cancelled step's process exits at most this long after the step's end, even if a name lookup would keep it alive.
 */
const EXIT_AFTER_MS = 200

/** The inputs of a step. The problems list every input that is missing or malformed. */
export interface StepInputs<Request> extends GivenInputs {
  readonly request: Request
  readonly connection: Connection
}

/** The facts about a run when its outputs are written. */
export type KnownResult = Partial<EndedDeployment> & { report: LocalReport }

/** Builds the action's outputs from the facts about a run. */
export type OutputsOf = (result: KnownResult) => Record<string, string>

/**
 * One step of a workflow that runs a deployment: the tools of the deployment, and the end of the step. Fails with
 * `internal_error` if the process would exit without a result.
 */
export class ActionStep {
  readonly tools: DeploymentTools
  readonly #log: RunnerLog
  readonly #annotator: Annotator
  readonly #files: RunnerFiles
  readonly #outputsOf: OutputsOf
  readonly #cancel = listenForCancel()
  /** The facts for the outputs if the run is killed; undefined before the deployment has begun. */
  #known: KnownResult | undefined
  /** The recovery that this run made, in one sentence. */
  #recovered: string | undefined

  constructor(inputs: StepInputs<unknown>, flows: Flows, outputsOf: OutputsOf) {
    const keeper = createSecretKeeper(inputs)
    this.#log = createRunnerLog(keeper.redact)
    this.#annotator = new Annotator(keeper.redact)
    this.#files = createRunnerFiles(this.#log, keeper.redact)
    this.#outputsOf = outputsOf
    const wire = wireOptions(inputs.connection, this.#log)
    const { signal } = this.#cancel
    const note = (result: KnownResult): void => this.#note({ ...result, report: redactReport(result.report, keeper) })
    this.tools = {
      wires: { wire: createWire({ ...wire, signal }), reportWire: createWire(wire) },
      log: this.#log,
      signal,
      now: () => new Date(),
      secrets: keeper,
      runner: readRunnerFacts(process.env),
      // The post step continues the main step's run.
      deploymentId: core.getState(RUN_STATE) || randomUUID(),
      observer: {
        onBegun: report => {
          this.#files.saveState(RUN_STATE, this.tools.deploymentId)
          note({ report })
        },
        onProgress: report => note({ report }),
        onEnded: ended => this.#noteBeforeReport(ended),
        onRecovered: sentence => {
          this.#recovered = sentence
        },
      },
      grace: startGrace(signal),
      flows,
    }
    process.once('beforeExit', this.#failUnsettled)
  }

  /** Hands the result to the runner: outputs, summary, annotations. Fails the step unless everything succeeded. */
  finish(result: EndedDeployment): void {
    this.#log.end()
    this.#files.saveState(ENDED_STATE, 'true')
    if (result.unwritten !== undefined) this.#log.warning(result.unwritten)
    this.#noteEnded(result)
    const { outcome } = result.report
    if (outcome !== 'success' || result.error !== undefined) {
      process.exitCode = 1
      const cause = result.error ?? new DeployError('internal_error', `The outcome is ${outcome}.`)
      this.#annotator.annotateFailure(cause, result.report)
    }
    this.#log.info(`${describeEnding(result).sentence}.`)
  }

  /** Adds the summary of a recovered deployment, if there was one. */
  finishRecovery(recovered: ClosedDeployment | undefined): void {
    this.#log.end()
    if (recovered !== undefined) this.#files.setSummary(buildDeploySummary({ ...recovered, notes: this.#log.notes }))
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
  fail(error: unknown): void {
    this.#log.end()
    this.#annotator.annotateError(error)
    process.exitCode = 1
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

  /** Fails the step if nothing is left to wake the process, which would then exit before the deployment has ended. */
  readonly #failUnsettled = (): void => {
    const message = 'This action stopped before its deployment had ended. This is a bug in this action: report it.'
    const error = { code: 'internal_error', message, step: null } as const
    const known = this.#known
    if (known === undefined) this.#files.setOutputs({ outcome: 'failed', 'error-code': error.code })
    else this.#note({ ...known, report: { ...known.report, error } })
    this.fail(new DeployError(error.code, message))
  }

  /**
   * Writes the outputs before the hub gets the report, because they must be right even if the run is killed in the
   * meantime. A cancelled run also writes its summary, because the runner will soon kill it.
   */
  #noteBeforeReport(ended: EndedDeployment): void {
    const { signal } = this.tools
    this.#note(ended)
    if (signal.aborted) this.#noteEnded(ended)
    else signal.addEventListener('abort', () => this.#noteEnded(ended), { once: true })
  }

  #noteEnded(ended: EndedDeployment): void {
    if (ended.handover !== undefined) this.#files.saveState(HANDOVER_STATE, ended.handover)
    this.#note(ended)
    const { notes, took } = this.#log
    this.#files.setSummary(buildDeploySummary({ ...ended, recovered: this.#recovered, notes, took }))
  }

  #note(result: KnownResult): void {
    this.#known = result
    const outputs = this.#outputsOf(result)
    this.tools.secrets.know([outputs['install-path'], outputs['report-path']])
    this.#files.setOutputs(outputs)
  }
}

/** Fails a step, even one that could not begin. The error of such a step contains no secret. */
export function failStep(step: ActionStep | undefined, error: unknown): void {
  process.exitCode = 1
  if (step === undefined) new Annotator(text => text).annotateError(error)
  else step.fail(error)
}
