import { monotonicMs } from '../../core/monotonic.ts'
import type { DeploymentRecord } from '../transaction/record.ts'
import { entryOf, notRun, type StepEnd } from './step-entry.ts'
import type { Step } from './step-runs.ts'

/** Records the steps of a deployment in their order, each once: as it ended, or as not run. */
export class StepLedger {
  readonly #record: DeploymentRecord
  readonly #left: Step[]
  #reached: Step | undefined
  /** The milliseconds that work for several steps at once has taken of each. */
  readonly #shares = new Map<Step, number>()
  readonly #now: () => number
  /** Since then, in milliseconds, the time is that of the next step. */
  #since: number

  constructor(record: DeploymentRecord, steps: readonly Step[], now = monotonicMs) {
    this.#record = record
    this.#now = now
    this.#since = now()
    this.#left = [...steps]
    this.#reached = steps[0]
  }

  /** Which step it is that fails, if anything fails now. */
  reach(step: Step | undefined): void {
    this.#reached = step ?? this.#reached
  }

  /** What was done since the last step was for all of these; for none, it does not count as time of a step. */
  share(steps: readonly Step[]): void {
    const each = (this.#now() - this.#since) / steps.length
    for (const step of steps) this.#shares.set(step, (this.#shares.get(step) ?? 0) + each)
    this.#since = this.#now()
  }

  /** Records how the next step has ended. */
  async end(step: Step, end: StepEnd): Promise<void> {
    this.#left.shift()
    const entry = entryOf(step, end, this.#timeOf(step))
    this.#since = this.#now()
    await this.#record.addStep(entry)
  }

  /** Records that the step which was reached has failed, and that all others that are left were not run. */
  async fail(error: unknown): Promise<void> {
    const failed = error instanceof Error ? error.message : String(error)
    for (const step of this.#left) {
      const isFailed = step === this.#reached
      await this.#record.addStep(isFailed ? entryOf(step, { failed }, this.#timeOf(step)) : notRun(step))
    }
  }

  #timeOf(step: Step): number {
    return (this.#shares.get(step) ?? 0) + this.#now() - this.#since
  }
}
