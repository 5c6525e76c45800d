import { DeployError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import type { RunnerFacts, SecretKeeper } from '../install/transaction/context.ts'
import { Annotator } from './annotations.ts'
import { listenForCancel } from './cancel.ts'
import { readRunnerFacts } from './environment.ts'
import { createRunnerFiles, type RunnerFiles } from './runner-files.ts'
import { createRunnerLog, type Note, type RunnerLog } from './runner-log.ts'
import { createSecretKeeper, type GivenSecrets } from './secret-keeper.ts'

/**
 * A cancelled step's process exits at most this long after the step's end, even if a name lookup would keep it alive.
 */
const EXIT_AFTER_MS = 200

/** The tools of a step that deploys nothing. */
export interface StepTools {
  readonly log: Log
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
export interface StepEnd {
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
  act: (inputs: Inputs, tools: StepTools) => Promise<StepEnd>,
): Promise<void> {
  let step: ReadingStep | undefined
  try {
    const inputs = readInputs()
    step = new ReadingStep(inputs)
    step.finish(await act(inputs, step.tools))
  } catch (error) {
    if (step === undefined) new Annotator(text => text).annotateError(error)
    else step.fail(error)
    process.exitCode = 1
  } finally {
    step?.close()
  }
}

class ReadingStep {
  readonly tools: StepTools
  readonly #log: RunnerLog
  readonly #annotator: Annotator
  readonly #files: RunnerFiles
  readonly #cancel = listenForCancel()

  constructor(given: GivenSecrets) {
    const secrets = createSecretKeeper(given)
    this.#log = createRunnerLog(secrets.redact)
    this.#annotator = new Annotator(secrets.redact)
    this.#files = createRunnerFiles(this.#log, secrets.redact)
    this.tools = {
      log: this.#log,
      notes: this.#log.notes,
      secrets,
      signal: this.#cancel.signal,
      now: () => new Date(),
      runner: readRunnerFacts(process.env),
      setOutputs: outputs => this.#files.setOutputs(outputs),
      saveState: (name, value) => this.#files.saveState(name, value),
    }
    process.once('beforeExit', this.#failUnsettled)
  }

  finish({ outputs, summary, sentence, error }: StepEnd): void {
    if (error !== undefined) this.#log.did('failed')
    this.#log.end()
    this.#files.setOutputs({ ...outputs, 'error-code': error?.code ?? '' })
    this.#files.setSummary(summary)
    if (error !== undefined) this.#annotate(error)
    this.#log.info(`${sentence}.`)
  }

  fail(error: unknown): void {
    this.#log.end()
    this.#files.setOutputs({ 'error-code': error instanceof DeployError ? error.code : 'internal_error' })
    this.#annotate(error)
  }

  /** Stops listening for a cancel. A cancelled process then soon exits, even if other work would keep it alive. */
  close(): void {
    this.#cancel.stop()
    process.off('beforeExit', this.#failUnsettled)
    if (this.tools.signal.aborted) setTimeout(() => process.exit(), EXIT_AFTER_MS).unref()
  }

  #annotate(error: unknown): void {
    process.exitCode = 1
    this.#annotator.annotateError(error)
  }

  /** Fails the step if nothing is left to wake the process, which would then exit before the step has ended. */
  readonly #failUnsettled = (): void => {
    const message = 'This action stopped before its work had ended. This is a bug in this action: report it.'
    this.fail(new DeployError('internal_error', message))
  }
}
