import { setImmediate } from 'node:timers/promises'
import { monotonicMs } from '../../core/monotonic.ts'

/** Milliseconds of synchronous work before signals and timers get their turn. */
const SLICE_MS = 25

/** Waits for one whole turn of the event loop, so that every signal that has arrived by now is handled. */
export async function hearSignals(): Promise<void> {
  // If the callback of a file or a socket calls this function, the first wait ends before the loop has polled for
  // signals.
  await setImmediate()
  await setImmediate()
}

/**
 * Divides long synchronous work into slices, so that a cancel is noticed: `if (slice.isOver()) await slice.giveBack()`.
 */
export class TimeSlice {
  readonly #signal: AbortSignal | undefined
  #endsAt = monotonicMs() + SLICE_MS

  constructor(signal?: AbortSignal) {
    this.#signal = signal
  }

  isOver(): boolean {
    return monotonicMs() >= this.#endsAt
  }

  /** Lets the event loop turn once and starts the next slice. Throws the signal's reason once the signal is aborted. */
  async giveBack(): Promise<void> {
    await setImmediate()
    this.#signal?.throwIfAborted()
    this.#endsAt = monotonicMs() + SLICE_MS
  }

  /** Calls `act` with each item. Lets the event loop turn whenever the slice is over. Throws as `giveBack` does. */
  async forEach<Item>(items: Iterable<Item>, act: (item: Item) => void): Promise<void> {
    for (const item of items) {
      act(item)
      if (this.isOver()) await this.giveBack()
    }
  }

  /**
   * Does work that pauses at each `yield`, where the slice may end. Returns the result of the work. Throws as
   * `giveBack` does.
   */
  async run<Result>(work: Generator<void, Result>): Promise<Result> {
    for (;;) {
      const step = work.next()
      if (step.done === true) return step.value
      if (this.isOver()) await this.giveBack()
    }
  }

  /** Passes on the pieces. Lets the event loop turn before a piece if the slice is over. Throws as `giveBack` does. */
  async *pace(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const piece of pieces) {
      if (this.isOver()) await this.giveBack()
      yield piece
    }
  }
}
