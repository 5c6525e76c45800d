import type { ExtractionLimits } from '../../core/archive/archive-limits.ts'
import { type TarPart, TarReader } from '../../core/archive/tar-reader.ts'

const NO_PARTS: Iterable<TarPart> = []

/** The members of a tar, part by part. Those that are in one piece of it come without a promise for each. */
export class TarParts {
  readonly #tar: TarReader
  readonly #pieces: AsyncIterator<Buffer>
  #arrived = NO_PARTS[Symbol.iterator]()
  #isOver = false

  /** `pieces` are the tar's bytes from the beginning, each of them valid until the next one is requested. */
  constructor(pieces: AsyncIterable<Buffer>, limits: ExtractionLimits) {
    this.#tar = new TarReader(limits)
    this.#pieces = pieces[Symbol.asyncIterator]()
  }

  /** Whether what was read is a whole tar. */
  get isComplete(): boolean {
    return this.#tar.isComplete
  }

  /** The next part that has arrived; undefined where only `wait` knows whether there is another. Throws as `wait` does. */
  take(): TarPart | undefined {
    try {
      const { value, done } = this.#arrived.next()
      return done === true ? undefined : value
    } catch (error) {
      this.#isOver = true
      throw error
    }
  }

  /**
   * The next part once it has arrived; undefined after the last one, and after an error was thrown. Throws what the
   * pieces throw and what a TarReader throws.
   */
  async wait(): Promise<TarPart | undefined> {
    for (let part = this.take(); ; part = this.take()) {
      if (part !== undefined || this.#isOver) return part
      await this.#readPiece()
    }
  }

  /** Ends the pieces, read to their end or not. */
  async close(): Promise<void> {
    await this.#pieces.return?.()
  }

  async #readPiece(): Promise<void> {
    try {
      const { value, done } = await this.#pieces.next()
      if (done !== true) this.#arrived = this.#tar.read(value)
      else {
        this.#isOver = true
        this.#tar.finish()
      }
    } catch (error) {
      this.#isOver = true
      throw error
    }
  }
}
