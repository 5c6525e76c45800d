const NOTHING = Buffer.alloc(0)

/**
 * Reads ranges of a stream that arrives in pieces. Each range must begin at or after the end of the previous range.
 * Copies a range only if it spans several pieces.
 */
export class PieceReader {
  readonly #pieces: AsyncIterator<Buffer>
  readonly #tooShort: () => Error
  #piece: Buffer = NOTHING
  /** The position of the current piece in the stream. */
  #start = 0

  /** `tooShort` builds the error for a stream that ends before a requested range does. */
  constructor(pieces: AsyncIterable<Buffer>, tooShort: () => Error) {
    this.#pieces = pieces[Symbol.asyncIterator]()
    this.#tooShort = tooShort
  }

  /**
   * Returns `length` bytes from `position`, valid until the next read. Throws the error that `tooShort` builds if the
   * stream ends first.
   */
  async read(position: number, length: number): Promise<Buffer> {
    const parts: Buffer[] = []
    for await (const part of this.stream(position, length)) parts.push(part.length < length ? Buffer.from(part) : part)
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts)
  }

  /**
   * Yields `length` bytes from `position`, in parts as they arrive. A part is valid until the next one is requested.
   * Throws as `read` does.
   */
  async *stream(position: number, length: number): AsyncGenerator<Buffer> {
    const end = position + length
    for (let at = position; at < end; ) {
      while (at >= this.#start + this.#piece.length) await this.#next()
      const part = this.#piece.subarray(at - this.#start, end - this.#start)
      at += part.length
      yield part
    }
  }

  /** Ends the stream of pieces, even if it was not read to its end. */
  async close(): Promise<void> {
    await this.#pieces.return?.()
  }

  async #next(): Promise<void> {
    const start = this.#start + this.#piece.length
    const { value, done } = await this.#pieces.next()
    if (done === true) throw this.#tooShort()
    this.#start = start
    this.#piece = value
  }
}
