import type { ExtractionLimits } from '../../core/archive/archive-limits.ts'
import { type TarPart, TarReader } from '../../core/archive/tar-reader.ts'

const NO_PARTS: Iterable<TarPart> = []

/** The members of a tar, part by part. A part that has arrived can be taken without a promise. */
export class TarParts {
  readonly #tar: TarReader
  readonly #pieces: AsyncIterator<Buffer>
  #arrived = NO_PARTS[Symbol.iterator]()
  #isOver = false

  /** `pieces` are the tar's bytes from the beginning. Each piece is valid until the next one is requested. */
  constructor(pieces: AsyncIterable<Buffer>, limits: ExtractionLimits) {
    this.#tar = new TarReader(limits)
    this.#pieces = pieces[Symbol.asyncIterator]()
  }

  /** True if a complete tar was read. */
  get isComplete(): boolean {
    return this.#tar.isComplete
  }

  /**
   * Returns the next part that has arrived, or undefined if only `wait` can tell whether there is another one. Throws
   * what a TarReader throws.
   */
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
   * Returns the next part once it has arrived; undefined after the last part, and after an error. Throws what the
   * pieces throw and what a TarReader throws.
   */
  async wait(): Promise<TarPart | undefined> {
    for (let part = this.take(); ; part = this.take()) {
      if (part !== undefined || this.#isOver) return part
      await this.#readPiece()
    }
  }

  /** Ends the stream of pieces, even if it was not read to its end. */
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
