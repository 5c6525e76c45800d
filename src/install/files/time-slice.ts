import { createHash } from 'node:crypto'
import { constants, openSync, readSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { monotonicMs } from '../../core/log.ts'
import { closeQuietlySync } from './open.ts'

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

  /** Calls `act` with each item. Lets the event loop turn whenever the slice is over. */
  async forEach<Item>(items: Iterable<Item>, act: (item: Item) => void): Promise<void> {
    for (const item of items) {
      act(item)
      if (this.isOver()) await this.giveBack()
    }
  }

  /** Does work that pauses at each `yield`, where the slice may end. Returns the result of the work. */
  async run<Result>(work: Generator<void, Result>): Promise<Result> {
    for (;;) {
      const step = work.next()
      if (step.done === true) return step.value
      if (this.isOver()) await this.giveBack()
    }
  }

  /** Passes on the pieces. Lets the event loop turn before a piece if the slice is over. */
  async *pace(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const piece of pieces) {
      if (this.isOver()) await this.giveBack()
      yield piece
    }
  }
}

const HASH_WINDOW_BYTES = 1024 * 1024
/** A pipe or a symlink that has replaced a file in the meantime is neither waited for nor followed. */
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW

/** Hashes many files one after another through one buffer, in slices between which signals are handled. */
export class FileDigester {
  readonly #window = Buffer.allocUnsafeSlow(HASH_WINDOW_BYTES)
  readonly #slice: TimeSlice

  constructor(signal?: AbortSignal) {
    this.#slice = new TimeSlice(signal)
  }

  /**
   * Returns the lowercase hex SHA-256 of a file that had `size` bytes when it was examined. If the file has grown since
   * then, reads at most 1 MiB more; the digest is then a different one. Throws the system's error, and the signal's
   * reason once the signal is aborted.
   */
  async sha256(path: string, size: number): Promise<string> {
    if (this.#slice.isOver()) await this.#slice.giveBack()
    const digest = createHash('sha256')
    const fd = openSync(path, FLAGS)
    try {
      for (let [count, read] = [-1, 0]; count !== 0 && read <= size; read += count) {
        count = readSync(fd, this.#window)
        digest.update(this.#window.subarray(0, count))
        if (this.#slice.isOver()) await this.#slice.giveBack()
      }
    } finally {
      closeQuietlySync(fd)
    }
    return digest.digest('hex')
  }
}
