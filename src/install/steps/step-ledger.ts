import { monotonicMs } from '../../core/monotonic.ts'
import type { DeploymentRecord } from '../transaction/record.ts'
import { entryOf, notRun, type StepEnd } from './step-entry.ts'
import type { Step } from './step-runs.ts'

/** Records the steps of a deployment in their order, each once: as it ended, or as not run. */
export class StepLedger {
  readonly #record: DeploymentRecord
  readonly #left: Step[]
  #reached: Step | undefined
  /** Since then, in milliseconds of `monotonicMs`, the time is that of the next step. */
  #since = monotonicMs()

  constructor(record: DeploymentRecord, steps: readonly Step[]) {
    this.#record = record
    this.#left = [...steps]
    this.#reached = steps[0]
  }

  /** Which step it is that fails, if anything fails now. */
  reach(step: Step | undefined): void {
    this.#reached = step ?? this.#reached
  }

  /** What was done so far does not count as time of a step. */
  restartClock(): void {
    this.#since = monotonicMs()
  }

  /** Records how the next step has ended. */
  async end(step: Step, end: StepEnd): Promise<void> {
    this.#left.shift()
    const entry = entryOf(step, end, monotonicMs() - this.#since)
    this.restartClock()
    await this.#record.addStep(entry)
  }

  /** Records that the step which was reached has failed, and that all others that are left were not run. */
  async fail(error: unknown): Promise<void> {
    const failed = error instanceof Error ? error.message : String(error)
    for (const step of this.#left) {
      const isFailed = step === this.#reached
      await this.#record.addStep(isFailed ? entryOf(step, { failed }, monotonicMs() - this.#since) : notRun(step))
    }
  }
}
