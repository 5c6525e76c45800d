import { setImmediate } from 'node:timers/promises'

/** Milliseconds of synchronous work before signals and timers get their turn. */
const SLICE_MS = 25

/** One whole turn of the event loop: every signal that has come by now is heard. */
export async function hearSignals(): Promise<void> {
  // The first may be over before the loop has asked for signals, where it is called from what a file or a socket answered.
  await setImmediate()
  await setImmediate()
}

/** Cuts long synchronous work into slices, so that a cancellation is heard: `if (slice.isOver()) await slice.giveBack()`. */
export class TimeSlice {
  readonly #signal: AbortSignal | undefined
  #endsAt = performance.now() + SLICE_MS

  constructor(signal?: AbortSignal) {
    this.#signal = signal
  }

  isOver(): boolean {
    return performance.now() >= this.#endsAt
  }

  /** Lets the event loop turn once and starts the next slice. Throws the signal's reason when it has been aborted. */
  async giveBack(): Promise<void> {
    await setImmediate()
    this.#signal?.throwIfAborted()
    this.#endsAt = performance.now() + SLICE_MS
  }
}
