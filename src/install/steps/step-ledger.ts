import { monotonicMs } from '../../core/monotonic.ts'
import type { DeploymentRecord } from '../transaction/record.ts'
import { entryOf, notRun, type StepEnd } from './step-entry.ts'
import type { Step } from './step-runs.ts'

/** Records each step of a deployment once, in order: how the step ended, or that the step was not run. */
export class StepLedger {
  readonly #record: DeploymentRecord
  readonly #left: Step[]
  #reached: Step | undefined
  /** Each step's share of the work that was done for several steps at once, in milliseconds. */
  readonly #shares = new Map<Step, number>()
  readonly #now: () => number
  /** The start of the time that counts for the next step, in milliseconds. */
  #since: number

  constructor(record: DeploymentRecord, steps: readonly Step[], now = monotonicMs) {
    this.#record = record
    this.#now = now
    this.#since = now()
    this.#left = [...steps]
    this.#reached = steps[0]
  }

  /** Sets the step that counts as failed if anything fails now. */
  reach(step: Step | undefined): void {
    this.#reached = step ?? this.#reached
  }

  /**
   * Divides the time since the last call to `share` or `end`, or since the start, equally among these steps. Drops that
   * time if there are no steps.
   */
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

  /** Records that the step set by `reach` has failed, and that the other remaining steps were not run. */
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
